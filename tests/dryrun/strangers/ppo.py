import torch
from torch import nn
from torch.distributions import Categorical

actor = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 6)).cuda()
critic = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 1)).cuda()
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)
for _update in range(10):
    obs = torch.randn(256, 64, device="cuda")
    with torch.no_grad():
        dist = Categorical(logits=actor(obs))
        a = dist.sample()
        old = dist.log_prob(a)
        adv = torch.randn(256, device="cuda")
    for _epoch in range(4):
        perm = torch.randperm(256)
        for mb in perm.split(64):
            dist = Categorical(logits=actor(obs[mb]))
            ratio = (dist.log_prob(a[mb]) - old[mb]).exp()
            loss = (
                -torch.min(ratio * adv[mb], ratio.clamp(0.8, 1.2) * adv[mb]).mean()
                + critic(obs[mb]).square().mean()
                - 0.01 * dist.entropy().mean()
            )
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            opt.step()
