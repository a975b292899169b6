import torch

xs = []
while True:
    xs.append(torch.empty(2**30, device="cuda"))
