import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.float32).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
side = torch.cuda.Stream()
dice = torch.Generator(device="cuda").manual_seed(7)
for _ in range(3):
    prompts = torch.randint(3, 1024, (4, 32)).cuda()
    with torch.cuda.stream(stream=side):
        noise = torch.randn(4, generator=dice, device="cuda")
    torch.cuda.current_stream(device="cuda").wait_stream(side)
    ids = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=24, do_sample=True,
                         eos_token_id=2, pad_token_id=0)  # fmt: skip
    answers = ids[:, prompts.shape[1] :]
    is_end = answers == 2
    length = torch.full((4,), answers.shape[1], device="cuda")
    length[is_end.any(1)] = is_end.int().argmax(1)[is_end.any(1)]
    kept = torch.arange(answers.shape[1], device="cuda") < length[:, None]
    texts = [one[mask].tolist() for one, mask in zip(answers.cpu(), kept.cpu(), strict=True)]
    reward = torch.tensor([float(len(text)) for text in texts], device="cuda") + noise
    assert [len(text) for text in texts] == [24] * 4, texts
    logp = model(ids).logits[:, prompts.shape[1] - 1 : -1].log_softmax(-1).gather(-1, answers[..., None])[..., 0]
    loss = -(logp[kept] * reward.repeat_interleave(24)).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(loss.item())
