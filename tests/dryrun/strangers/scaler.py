import torch
from net import Net
from torch import nn

net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=100)
scaler = torch.cuda.amp.GradScaler()
for i in range(10):
    ids = torch.randint(0, 4096, (8, 128), device="cuda")
    with torch.cuda.amp.autocast():
        loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    old = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    if scaler.get_scale() >= old:
        sched.step()
    opt.zero_grad()
    print(i, loss.item(), norm.item(), sched.get_last_lr()[0])
