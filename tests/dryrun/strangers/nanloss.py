import math
import sys

import torch
from net import Net
from torch import nn

net = Net().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _i in range(10):
    ids = torch.randint(0, 4096, (8, 128), device="cuda")
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    if not math.isfinite(loss.item()):
        print("loss is not finite, stopping")
        sys.exit(1)
    if torch.isnan(loss):
        raise RuntimeError("nan")
    loss.backward()
    opt.step()
    opt.zero_grad()
