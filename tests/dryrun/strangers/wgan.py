import torch
from torch import autograd, nn

G = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 784)).cuda()
D = nn.Sequential(nn.Linear(784, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 1)).cuda()
opt_g = torch.optim.RMSprop(G.parameters(), lr=5e-5)
opt_d = torch.optim.RMSprop(D.parameters(), lr=5e-5)


def penalty(real, fake):
    a = torch.rand(real.size(0), 1, device=real.device)
    x = (a * real + (1 - a) * fake).requires_grad_(True)
    out = D(x)
    grads = autograd.grad(out, x, torch.ones_like(out), create_graph=True)[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


step = 0
while step < 100:
    for _ in range(5):
        real = torch.randn(64, 784).cuda()
        fake = G(torch.randn(64, 128, device="cuda")).detach()
        loss = D(fake).mean() - D(real).mean() + 10 * penalty(real, fake)
        opt_d.zero_grad()
        loss.backward()
        opt_d.step()
    loss_g = -D(G(torch.randn(64, 128, device="cuda"))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    step += 1
