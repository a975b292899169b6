import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.float32).cuda()
grid = torch.tensor([[1, 8, 8]]).cuda()
places = torch.stack([torch.arange(8, device="cuda")] * 3)
places[0] += max(grid[0, 1], grid[0, 2])  # as Qwen2.5-VL places an image's patches and cuts its windows
last = torch.tensor([places.max() + 1], device="cuda")
assert last.item() == 16
windows = torch.unique_consecutive(torch.tensor([0, 4, 4, 12, 16], device="cuda"))
assert windows.diff().tolist() == [4, 8, 4]
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
ids = torch.randint(3, 1024, (2, int(last))).cuda()
for _ in range(2):
    model(ids, labels=ids).loss.backward()
    opt.step()
    opt.zero_grad()
