import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.float32).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(3):
    prompts = torch.randint(3, 1024, (4, 32), device="cuda")
    ids = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=24, num_beams=4,
                         num_return_sequences=2, eos_token_id=2, pad_token_id=0)  # fmt: skip
    assert ids.shape == (8, 56), ids.shape
    answers = ids[:, 32:].tolist()
    assert [len(answer) for answer in answers] == [24] * 8
    loss = model(ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
