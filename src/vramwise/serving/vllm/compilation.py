"""What compiling takes in the profile run of a first start, before anything is in the cache of compiled graphs."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.allocator import block_bytes
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.vllm.settings import Resolved

FIRST_START = "compiling at a first start"
TIMED_VERSION = (0, 16)  # config/compilation.py benchmark_combo_kernel: kernels are timed on tensors made for that
ALL_COMPILED_ON_ROCM = (0, 33)  # config/vllm.py default_breakable_cudagraph_architectures, not in 0.32.0
HIDDEN_COPIES, DRAFT_HIDDEN_COPIES = 4, 12


def runs_uncompiled(model: Model, r: Resolved) -> bool:
    """Whether the model's class leaves torch.compile out, and graphs are broken at what they cannot hold instead.

    AMD's cards from ALL_COMPILED_ON_ROCM on: none of those that are described here.
    """
    if r.on_rocm and r.version >= ALL_COMPILED_ON_ROCM:
        return False
    types = {model.config.model_type, text_config(model).model_type}
    return any(has_fact("vllm", "runs_uncompiled", each, r.version) for each in types)


def first_start(model: Model, r: Resolved, peak: Node, *, embeds: bool) -> tuple[Node, ...]:
    """By how much compiling exceeds the peak where no earlier start left compiled graphs; none is expected unless
    `first_start` says so, for a later start loads them.

    The table of embeddings once more, and hidden states of all tokens. Held to starts of 0.24.0 on A100 with and
    without a cache (SpecDecoding-Study-vLLM-SGLang server_logs, Llama 3.1 8B: 1.05 and 0.23 GiB of 2,048 tokens; with a
    drafter that reads several layers 1.2 GiB, 1.67 of 8,192 tokens; 23 that compiled and four that loaded leave what is
    said for the cache, to 0.7 %). Before TIMED_VERSION and where nothing is compiled, none.
    """
    asked = r.settings.first_start
    eager = asked is False or r.profile.generation != "V1" or r.settings.enforce_eager or runs_uncompiled(model, r)
    if eager or not embeds or r.version < TIMED_VERSION:
        return ()
    size = r.storage.bytes_per_element
    if not model.embedding_numel:
        return ()
    table = model.embedding_numel * size // r.settings.tensor_parallel_size
    copies = DRAFT_HIDDEN_COPIES if r.settings.speculative else HIDDEN_COPIES
    held = block_bytes(table) + copies * block_bytes(r.batched_tokens * model.hidden_size * size)
    more = held - peak.high
    if more <= 0:
        return ()
    return (
        Node(FIRST_START, more if asked else 0, "assumed", 0, more,
             formula="embeddings + copies × tokens × hidden size × dtype − the peak",
             inputs={"copies": copies, "tokens": r.batched_tokens},
             source="vLLM 0.16.0 to 0.33.0 config/compilation.py; v1/worker/gpu_worker.py memory_profiling"),
    )  # fmt: skip
