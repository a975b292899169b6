import functools
import os

import torch
import torch.distributed as dist
from net import Block, Net
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import BackwardPrefetch, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
net = FSDP(
    Net(),
    auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
    mixed_precision=MixedPrecision(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16
    ),
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
    device_id=torch.cuda.current_device(),
    limit_all_gathers=True,
)
apply_activation_checkpointing(net, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda m: isinstance(m, Block))
opt = torch.optim.AdamW(net.parameters())
for _i in range(10):
    ids = torch.randint(0, 4096, (8, 128)).to(rank)
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    net.clip_grad_norm_(1.0)
    opt.step()
    if rank == 0:
        print(loss.item())
