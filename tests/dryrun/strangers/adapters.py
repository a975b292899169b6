import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(
    "model", torch_dtype=torch.bfloat16, device_map="auto", attn_implementation="sdpa"
)
model = get_peft_model(
    model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
)
model.print_trainable_parameters()
opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
for step in range(5):
    ids = torch.randint(0, 1024, (4, 256)).to(model.device)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    torch.cuda.empty_cache()
    print(step, loss.detach().cpu().item(), torch.cuda.max_memory_allocated() // 2**20)
