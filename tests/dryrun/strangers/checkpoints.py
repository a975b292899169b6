import os

import torch
from net import Net
from torch import nn

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net().to(device)
opt = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
os.makedirs("ckpt", exist_ok=True)
if os.path.exists("ckpt/last.pt"):
    state = torch.load("ckpt/last.pt", map_location=device)
    net.load_state_dict(state["model"])
losses = []
for i in range(1000):
    ids = torch.randint(0, 4096, (8, 128), device=device)
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    torch.save({"model": net.state_dict(), "opt": opt.state_dict(), "step": i}, f"ckpt/step{i}.pt")
    torch.save(net.state_dict(), "ckpt/last.pt")
