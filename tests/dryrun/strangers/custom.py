import torch
from torch import nn


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Focal(nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits, y):
        ce = nn.functional.cross_entropy(logits, y, reduction="none")
        return ((1 - torch.exp(-ce)) ** self.gamma * ce).mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1024, 4096)
        self.b = nn.Linear(4096, 1000)

    def forward(self, x):
        return self.b(Swish.apply(self.a(x)))


net = Net().cuda()
loss_fn = Focal().cuda()
opt = torch.optim.AdamW(net.parameters())
for i in range(10):
    x = torch.randn(256, 1024).cuda()
    y = torch.randint(0, 1000, (256,)).cuda()
    loss = loss_fn(net(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    if i % 5 == 0:
        print(loss)
