import torch
from torch import nn

device = "cuda"
G = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 784), nn.Tanh()).to(device)
D = nn.Sequential(nn.Linear(784, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 1)).to(device)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)
bce = nn.BCEWithLogitsLoss()
for epoch in range(3):
    for i in range(100):
        real = torch.randn(64, 784, device=device)
        z = torch.randn(64, 128, device=device)
        fake = G(z)
        d_loss = bce(D(real), torch.ones(64, 1, device=device)) + bce(
            D(fake.detach()), torch.zeros(64, 1, device=device)
        )
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = bce(D(fake), torch.ones(64, 1, device=device))
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        print(f"iteration {epoch} {i}: {d_loss.item():.3f} {g_loss.item():.3f}")
