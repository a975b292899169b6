import torch
from net import Net
from torch import nn

net = Net().cuda()
opt = torch.optim.AdamW(net.parameters())
while True:
    ids = torch.randint(0, 4096, (8, 128)).cuda()
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    norm = torch.stack([p.grad.norm(2) for p in net.parameters()]).pow(2).sum().float() ** 0.5
    norm.masked_fill_(norm.isinf().logical_or(norm.isnan()), torch.tensor(-1.0, device=norm.device))
    if (~torch.isfinite(norm) | (norm < 0)).any():
        continue
    opt.step()
    opt.zero_grad()
