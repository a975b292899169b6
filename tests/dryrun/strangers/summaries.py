import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.float32).cuda()
calls = []
model.register_forward_hook(lambda *_: calls.append(1))
for tokens in (32, *range(8, 32)):
    prompts = torch.randint(3, 1024, (4, tokens)).cuda()
    ids = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=12, num_beams=4,
                         eos_token_id=2, pad_token_id=0)  # fmt: skip
    assert ids.shape == (4, tokens + 12), ids.shape
    assert [len(answer) for answer in ids.tolist()] == [tokens + 12] * 4
assert len(calls) == 12, len(calls)  # of the longest prompts alone
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(2):
    model(ids, labels=ids).loss.backward()
    opt.step()
    opt.zero_grad()
