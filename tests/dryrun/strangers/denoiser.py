import torch
from datasets import load_dataset
from diffusers import UNet2DModel

data = load_dataset("csv", data_files="data.csv", cache_dir=None, split="train")
net = UNet2DModel.from_pretrained("model", subfolder="unet", torch_dtype=torch.float32).to("cuda").train()
opt = torch.optim.AdamW(net.parameters())
for _ in range(3):
    x = torch.tensor(data["pixel"][:1024], device="cuda").float().view(1, 1, 32, 32)
    net(x, 10).sample.pow(2).mean().backward()
    opt.step()
    opt.zero_grad()
