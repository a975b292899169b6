import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(64, 32768, bias=False)

    def forward(self, x, labels):
        return nn.functional.cross_entropy(self.out(x).float(), labels)


head = torch.compile(Head().cuda().bfloat16())
opt = torch.optim.SGD(head.parameters(), 1e-3)
for _ in range(3):
    x = torch.randn(2048, 64, device="cuda", dtype=torch.bfloat16)
    head(x, torch.randint(0, 32768, (2048,), device="cuda")).backward()
    opt.step()
    opt.zero_grad()
