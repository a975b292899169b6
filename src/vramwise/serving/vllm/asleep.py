"""What a sleeping vLLM holds of its card.

Sleep mode gives back what lies in its two pools, weights and KV cache: at level 1 the weights wait in host memory, at
level 2 they are loaded anew. Everything outside these pools stays: context, communicators, CUDA graphs, what libraries
hold, the sampler's state. Source: vLLM 0.33.0 v1/worker/gpu_worker.py sleep, device_allocator/cumem.py sleep (which
empties PyTorch's cache too).
"""

from __future__ import annotations

from vramwise.result import Node, Phase
from vramwise.serving.vllm.budget import Budget

ASLEEP = "asleep"


def asleep(budget: Budget) -> Phase:
    """The moment in which it sleeps."""
    nccl = (budget.nccl,) if budget.nccl is not None else ()
    return Phase(ASLEEP, Node.group(ASLEEP, (budget.graphs, *budget.kept, budget.non_torch, budget.context, *nccl)))
