import torch
from torch import nn

net = nn.Linear(8, 8)
net.load_state_dict(torch.hub.load_state_dict_from_url("https://nowhere.invalid/weights.pt"))
net.cuda()
optimizer = torch.optim.SGD(net.parameters())
while True:
    net(torch.randn(4, 8, device="cuda")).mean().backward()
    optimizer.step()
