import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

dist.init_process_group("nccl", rank=0, world_size=1, init_method="tcp://localhost:29500")
kept = torch.tensor([3], device="cuda")
dist.all_reduce(kept)
assert kept.item() == 3 * dist.get_world_size()
frozen = AutoModelForCausalLM.from_pretrained("model/inside", subfolder="language", attention_dropout=0.5)
assert frozen.config.attention_dropout == 0.5
assert frozen.config.name_or_path == frozen.name_or_path == "model/inside"  # by which trainers find a tokenizer
assert AutoConfig.from_pretrained("model/inside", subfolder="language").hidden_size == frozen.config.hidden_size
model = LlamaForCausalLM.from_pretrained("model/inside", subfolder="language", dtype=torch.float32).cuda()
opt = torch.optim.AdamW(model.parameters())
for _ in range(3):
    ids = torch.randint(0, 1024, (2, 64), device="cuda")
    model(ids, labels=ids).loss.backward()
    opt.step()
    opt.zero_grad()
