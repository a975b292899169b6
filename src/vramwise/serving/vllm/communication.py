"""What ranks on one NVLink switch hold to talk to each other, outside of torch's pool."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Node
from vramwise.serving.common.constants import Constant, constant, gib_node, learned_bytes
from vramwise.serving.vllm.settings import Resolved
from vramwise.units import GIB, MIB

# "Enabled custom fusions: allreduce_rms": read in 0.19.0 config/vllm.py enable_allreduce_rms_fusion (flashinfer 0.6.6)
FUSED_VERSION = (0, 19)
HOPPER, BLACKWELL = (9.0,), (10.0, 10.3)
# 0.19.0 compilation/passes/fusion/allreduce_rms_fusion.py FI_ALLREDUCE_FUSION_MAX_SIZE_MB, by capability and ranks
MOST_MIB = {9.0: {2: 64.0, 4: 2.0, 8: 0.5}, 10.0: {2: 64.0, 4: 32.0, 8: 1.0}, 10.3: {2: 64.0, 4: 64.0, 8: 2.0}}
FLAGS = 256  # flashinfer comm/trtllm_ar.py BarrierFlagCount
MOST_LAMPORT = 2147483647 & ~((1 << 21) - 1)  # MAX_COMM_SIZE there
SMALLEST_PAGE = 2 * MIB
# cuMulticastGetGranularity's recommended size; 1.5 GiB of three buffers stand in the logs of 0.19.0 on H100, whatever
# their sizes (two ranks: 128, 0 and 384 MiB; four: 8, 0 and 24)
MULTICAST_PAGE = 512 * MIB


def has_multicast(r: Resolved) -> bool:
    """Whether the card's switches can write to all ranks at once."""
    return r.capability is not None and r.capability in (*HOPPER, *BLACKWELL)


def joined_ranks(model: Model, r: Resolved) -> int:
    """Ranks that talk to each other in a layer: of tensor parallelism, and copies of the model whose tokens meet at its
    experts (distributed/parallel_state.py of 0.10.1 to 0.33.0: a communicator of data ranks and one of experts')."""
    copies = r.settings.data_parallel_size if model.has(ExpertMlps) else 1
    return r.settings.tensor_parallel_size * copies


def joined_by_multicast(model: Model, r: Resolved, gpu: Gpu) -> Node:
    """Libraries as on one card, communicators, and the work space of the fused all-reduce and norm."""
    terms = (gib_node("libraries", constant("vllm", "non_torch_tp1", r.version), {}),
             gib_node("communicators", constant("vllm", "non_torch_communicators", r.version), {}),
             *_fused_work_space(model, r))  # fmt: skip
    inputs = {"tensor_parallel_size": r.settings.tensor_parallel_size}
    low, expected, high = (sum(int(getattr(term, end)) for term in terms) for end in ("low", "bytes", "high"))
    source = "; ".join(term.source for term in terms)
    shipped = Constant(low / GIB, expected / GIB, high / GIB, "assumed", source)
    ranks = joined_ranks(model, r) * r.settings.pipeline_parallel_size
    here = learned_bytes("non_torch", shipped, gpu, "vllm", r.settings.engine_version, ranks)
    return gib_node("non-torch", shipped, inputs, here) if here is not None else Node.group("non-torch", terms)


def _fused_work_space(model: Model, r: Resolved) -> tuple[Node, ...]:
    """Three buffers that all ranks see, each up to a whole page of the multicast object: inputs of all ranks, flags,
    and three rounds of Lamport's; a driver with small pages takes no more than their own sizes."""
    settings = r.settings
    ranks = settings.tensor_parallel_size
    most = MOST_MIB.get(r.capability or 0.0, {}).get(ranks)
    alone = settings.data_parallel_size == settings.pipeline_parallel_size == 1
    if most is None or not alone or settings.enforce_eager:
        return ()
    row = model.hidden_size * r.storage.bytes_per_element
    tokens = min(int(most * MIB) // row, r.batched_tokens)
    sent = ranks * tokens * model.hidden_size * 2
    sizes = (sent, ranks * FLAGS * 4, 3 * min(sent, MOST_LAMPORT))
    low, held = (sum(-(-size // page) * page for size in sizes) for page in (SMALLEST_PAGE, MULTICAST_PAGE))
    node = Node(
        "fused all-reduce and norm", held, "assumed", low, held,
        formula="ranks × tokens × hidden size × 2, flags, 3 × the first, each in whole pages of 512 MiB",
        inputs={"tokens": tokens, "tensor_parallel_size": ranks},
        source="vLLM 0.19.0 compilation/passes/fusion/allreduce_rms_fusion.py; flashinfer 0.6.6 comm/trtllm_ar.py, "
        "comm/mnnvl.py SymmDeviceMemory",
    )  # fmt: skip
    return (node,)
