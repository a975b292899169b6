import os

import torch
import torch.distributed as dist
from net import Net
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
net = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(Net()).to(rank), device_ids=[rank])
data = TensorDataset(torch.randint(0, 4096, (640, 128)))
sampler = DistributedSampler(data)
loader = DataLoader(data, 8, sampler=sampler, num_workers=4, pin_memory=True)
opt = torch.optim.AdamW(net.parameters())
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (ids,) in loader:
        ids = ids.to(rank)
        loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.barrier()
dist.destroy_process_group()
