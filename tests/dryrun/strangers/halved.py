import torch
from net import Net
from torch import nn

net = Net().cuda()
opt = torch.optim.AdamW(net.parameters())
bs = 65536
while True:
    try:
        ids = torch.randint(0, 4096, (bs, 128)).cuda()
        loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()
    except torch.cuda.OutOfMemoryError:
        bs //= 2
        print("down to", bs)
        torch.cuda.empty_cache()
