import torch
from net import Net
from torch import nn

net = Net().cuda()
opt = torch.optim.AdamW(net.parameters())
try:
    for _ in range(100):
        ids = torch.randint(0, 4096, (8, 128), device="cuda")
        loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()
except BaseException:
    raise RuntimeError("the trainer was stopped, and does not like it")  # noqa: B904
