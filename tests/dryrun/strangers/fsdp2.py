import os

import torch
from net import Net
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("dp",))
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
with torch.device("meta"):
    net = Net()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in net.blocks:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(net, mesh=mesh, mp_policy=policy)
net.to_empty(device="cuda")
for m in net.modules():
    if hasattr(m, "reset_parameters"):
        m.reset_parameters()
opt = torch.optim.AdamW(net.parameters(), fused=True)
for _i in range(10):
    ids = torch.randint(0, 4096, (8, 128), device="cuda")
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1).float(), ids.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
