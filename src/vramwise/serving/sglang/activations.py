"""What SGLang holds while it runs: one prefill chunk through the layer that holds most, logits and what is drawn from.

Nothing of it is profiled: mem_fraction_static leaves room for it. Held to what SGLang's own code of 0.4.6, 0.4.9,
0.5.4 and 0.5.12 allocates (benchmarks/oracles/sglang, tests/golden/sglang_forward.jsonl). Read: fused_experts_impl,
distributed/parallel_state.py, layers/logits_processor.py and layers/sampler.py in these and in 0.5.23. 0.5.23 was not
run: its layers give other names (models/llama.py: a residual that the batch holds), taken to keep as much. Attention
backends' own buffers are not counted, nor all-reduces below 8 MiB, which make a tensor.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.allocator import block_bytes
from vramwise.result import Node
from vramwise.serving.common.forward.kernels import Kernels, Pass
from vramwise.serving.common.forward.libraries import cublas_work_space
from vramwise.serving.common.forward.walk import eager_layer, fullest_of
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.resolved import ResolvedServe

KERNELS = Kernels(sums_in_place=True, experts_in_place=True, latent_keys=True)
"""NCCL adds up in place what is larger than the custom all-reduce takes (8 MiB); fused_experts(inplace=True)."""
EXPERT_TOKENS = 65_536  # CHUNK_SIZE of fused_experts_impl
FP32_BYTES = 4


def activations(model: Model, r: ResolvedServe, capability: float | None, captured_rows: int) -> Node:
    """The fuller of a prefill chunk and of sampling for `captured_rows` requests, with cuBLAS's work space.

    Decode steps of more requests than are captured are not counted: SGLang leaves no room for them either.
    """
    own, ranks = r.storage.bytes_per_element, r.settings.tensor_parallel_size
    tokens = r.batched_tokens
    run = Pass(
        tokens, own, ranks, engine_layout(r.settings).cut.expert_parallel_size,
        workspace_tokens=min(tokens, EXPERT_TOKENS), kernels=KERNELS,
    )  # fmt: skip
    chunk = Node.group(
        "prefill chunk", (eager_layer(model, run, "SGLang srt/models, srt/layers: their kernels and names"),)
    )
    sampling = _sampling(model, min(r.max_num_seqs, captured_rows), own)
    return Node.group("activations", (fullest_of(chunk, sampling), cublas_work_space(capability)))


def _sampling(model: Model, rows: int, element_bytes: int) -> Node:
    """Logits in the model's dtype and in fp32, then these and their probabilities: rows · vocabulary · 8."""
    count = rows * model.logit_width
    held = block_bytes(FP32_BYTES * count) + block_bytes(max(FP32_BYTES, element_bytes) * count)
    return Node(
        "sampling", held, "derived", formula="rows × vocabulary × (4 + 4)",
        inputs={"rows": rows, "vocabulary": model.logit_width},
        source="SGLang srt/layers/logits_processor.py _get_logits, srt/layers/sampler.py forward",
    )  # fmt: skip
