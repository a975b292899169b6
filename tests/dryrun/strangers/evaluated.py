import argparse

import torch
from net import Net
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--epochs", type=int, default=2)
args = p.parse_args()


def evaluate(net, loader):
    net.eval()
    total, correct, seen = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
            logits = net(x)
            total += nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten()).item()
            correct += (logits.argmax(-1) == y).sum().item()
            seen += y.numel()
    net.train()
    return total / len(loader), correct / seen


data = TensorDataset(torch.randint(0, 4096, (64, 128)), torch.randint(0, 4096, (64, 128)))
train, val = random_split(data, [48, 16])
loaders = [
    DataLoader(
        d, args.batch_size, shuffle=True, num_workers=4, pin_memory=True, drop_last=True, persistent_workers=True
    )
    for d in (train, val)
]
net = Net().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
best = 0.0
for epoch in range(args.epochs):
    loss0, acc = evaluate(net, loaders[1])
    for x, y in loaders[0]:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    val, acc = evaluate(net, loaders[1])
    print(f"epoch {epoch} loss {val:.3f} acc {acc:.3f}")
    if acc > best:
        best = acc
        torch.save(net.state_dict(), "best.pt")
