import torch
from net import Net
from torch import nn

net = torch.compile(Net().cuda())
opt = torch.optim.AdamW(net.parameters())
for _i in range(10):
    ids = torch.randint(0, 4096, (8, 128)).cuda()
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
