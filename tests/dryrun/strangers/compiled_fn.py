import torch
from net import Net
from torch import nn

net = Net().cuda()
opt = torch.optim.AdamW(net.parameters())


@torch.compile
def loss_of(logits, ids):
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


net.compile()
for _i in range(10):
    ids = torch.randint(0, 4096, (8, 128)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = net(ids)
    loss = loss_of(logits, ids)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
