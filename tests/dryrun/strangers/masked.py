import torch
from net import Net
from torch import nn

net = Net().cuda()
opt = torch.optim.AdamW(net.parameters())
for _i in range(10):
    ids = torch.randint(0, 4096, (8, 128)).cuda()
    logits = net(ids).flatten(0, 1)
    keep = ids.flatten() != 0
    loss = nn.functional.cross_entropy(logits[keep], ids.flatten()[keep])
    loss.backward()
    opt.step()
    opt.zero_grad()
