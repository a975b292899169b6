import argparse

import deepspeed
import torch
from net import Net
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--local_rank", type=int, default=-1)
args = deepspeed.add_config_arguments(p).parse_args()
config = {
    "train_micro_batch_size_per_gpu": 8,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
    "gradient_clipping": 1.0,
}
net = Net()
engine, opt, _, _ = deepspeed.initialize(args=args, model=net, model_parameters=net.parameters(), config=config)
for i in range(10):
    ids = torch.randint(0, 4096, (8, 128)).to(engine.device)
    logits = engine(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
    engine.backward(loss)
    engine.step()
    if engine.global_rank == 0:
        print(i, loss.item())
