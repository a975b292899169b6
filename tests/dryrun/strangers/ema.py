import copy

import torch
from net import Net
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

net = Net().cuda()
ema = copy.deepcopy(net).eval()
for p in ema.parameters():
    p.requires_grad_(False)
ema2 = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.999))
opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 1000)
best = float("inf")
running = 0.0
for i in range(1000):
    ids = torch.randint(0, 4096, (8, 128), device="cuda")
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad()
    running += loss.item()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters(), strict=False):
            a.mul_(0.999).add_(b, alpha=0.001)
    ema2.update_parameters(net)
    if i % 10 == 0:
        used = torch.cuda.memory_allocated() / 2**20
        print(f"{i} {running / (i + 1):.4f} lr {sched.get_last_lr()[0]:.2e} memory {used:.0f}")
