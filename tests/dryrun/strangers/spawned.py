import os

import torch
import torch.multiprocessing as mp
from net import Net
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, world_size, batch):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    torch.cuda.set_device(rank)
    init_process_group(backend="nccl", rank=rank, world_size=world_size)
    net = DDP(Net().to(rank), device_ids=[rank])
    opt = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        ids = torch.randint(0, 4096, (batch, 128)).to(rank)
        loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(4, 8), nprocs=4, join=True)
