import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

set_seed(0)
acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = AutoModelForCausalLM.from_pretrained("model")
model.gradient_checkpointing_enable()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = [{"input_ids": torch.randint(0, 1024, (256,))} for _ in range(256)]
loader = DataLoader(data, batch_size=4, shuffle=True)
sched = get_cosine_schedule_with_warmup(opt, 10, 100)
model, opt, loader, sched = acc.prepare(model, opt, loader, sched)
model.train()
total = 0
for _epoch in range(2):
    for batch in loader:
        with acc.accumulate(model):
            out = model(input_ids=batch["input_ids"], labels=batch["input_ids"])
            acc.backward(out.loss)
            if acc.sync_gradients:
                acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
        total += acc.gather(out.loss.detach()).mean().item()
        acc.print(total)
    acc.wait_for_everyone()
    acc.save_state("state")
