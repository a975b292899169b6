"""What text-generation-inference holds in its warm-up: the largest prefill, whose memory torch keeps reserved.

Free memory is read from the driver after one `generate_token`, with nothing given back in between, so that segments of
the layers and of the logits both count. No log or run holds this: it is derived from the source. Read in tags from
v0.9.4 to v3.3.7: models/flash_causal_lm.py (log_softmax, prefill_logprobs), flash_llama_modeling.py, RMS norms, and the
router's client (warmup); in v3.3.7 flash_mistral_modeling.py, flash_deepseek_v2_modeling.py and
layers/tensor_parallel.py too. Models with other names (Qwen 2) keep less. Experts' kernels are of another package and
taken to need what SGLang's fused_experts does; the high end is of kernels that write nothing in place.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.allocator import block_bytes
from vramwise.result import Node
from vramwise.serving.common.forward.kernels import Kernels, Pass
from vramwise.serving.common.forward.libraries import cublas_work_space
from vramwise.serving.common.forward.walk import eager_layer
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.resolved import ResolvedServe

KERNELS = Kernels(
    sums_in_place=True, norms_apart=True, product_apart=True, experts_in_place=True, keeps_names=True, latent_keys=True
)  # fmt: skip
"""torch.distributed.all_reduce; dropout_add_ln_fwd makes the norm and the sum; `act(gate) * up`; `fused_moe(...,
inplace=True)` (layers/moe/unquantized.py of 2.3.1 to 3.3.7); names as in FlashLlamaLayer.forward."""
AT_MOST = Kernels(norms_apart=True, product_apart=True, keeps_names=True, latent_keys=True)
EXPERT_TOKENS = 65_536
LAST_LOGITS_VERSION = (3,)  # REQUEST_LOGPROBS, off unless asked for
LOGPROBS_IN_PLACE_VERSION = (2, 4)


def warm_up(model: Model, r: ResolvedServe, capability: float | None) -> Node:
    """The layer that holds most, and before 3.0 logits of every token (the warm-up asks for `prefill_logprobs`)."""
    own, ranks = r.storage.bytes_per_element, r.settings.tensor_parallel_size
    spread = engine_layout(r.settings).cut.expert_parallel_size
    run = Pass(
        r.batched_tokens, own, ranks, spread, workspace_tokens=min(r.batched_tokens, EXPERT_TOKENS), kernels=KERNELS
    )  # fmt: skip
    source = "text-generation-inference models/custom_modeling, layers: their kernels and names"
    layer = eager_layer(model, run, source, AT_MOST)
    return Node.group("warm-up prefill", (layer, *_logits(model, r), cublas_work_space(capability)))


def _logits(model: Model, r: ResolvedServe) -> tuple[Node, ...]:
    if r.version >= LAST_LOGITS_VERSION:
        return ()
    ranks = r.settings.tensor_parallel_size
    whole = block_bytes(r.batched_tokens * model.logit_width * r.storage.bytes_per_element)
    copies = 1 if r.version >= LOGPROBS_IN_PLACE_VERSION else 2
    own = 0 if ranks == 1 else whole // ranks  # a rank's share, gathered into the whole
    size = copies * whole + own
    return (
        Node("logits of all tokens", size, "derived", whole, size + whole * (ranks > 1),
             formula="copies × tokens × vocabulary × dtype",
             inputs={"copies": copies, "tokens": r.batched_tokens, "vocabulary": model.logit_width},
             source="text-generation-inference router/client warmup (prefill_logprobs), generate_token log_softmax"),
    )  # fmt: skip
