"""Weights that a kernel of vLLM unpacks to the dtype of activations before it multiplies."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.weights import stage_weights
from vramwise.serving.vllm.settings import Resolved

UNPACK_ABOVE_TOKENS = 256
MARLIN_ON_TURING_VERSION = (0, 14)  # quantization/utils/marlin_utils.py of 0.13.0 and 0.14.0
AMPERE, TURING = 8.0, 7.5
ONE_AWQ_VERSION = (0, 24)  # auto_awq.py: "awq" no longer asks for AWQ's own kernels
ROCM_KERNELS_VERSION = (0, 19)  # awq_marlin.py: AMD's cards too take a kernel that unpacks nothing; not since auto_awq


def unpacked_bytes(model: Model, r: Resolved) -> int:
    """Bytes of the largest weight, unpacked whole; 0 where none is.

    AWQ's own kernels unpack for steps of 256 tokens or more (quantization/awq.py). The branch is Python's, taken as the
    step of the profile run is traced, and compilation/wrapper.py drops its guard: so do all steps of a compiled model,
    those that graphs capture included. bitsandbytes unpacks for more than one token.
    """
    rule = r.storage.quantization
    if rule is None or r.batched_tokens <= UNPACK_ABOVE_TOKENS:
        return 0
    if not (rule.layout == "awq" and _has_own_awq(r)) and not rule.layout.startswith("bnb-4bit"):
        return 0
    stages = stage_weights(model, r.storage, engine_layout(r.settings))
    return max(stage.largest_linear_elements for stage in stages) * r.storage.bytes_per_element


def _has_own_awq(r: Resolved) -> bool:
    """Whether AWQ's own kernels run: without Marlin's, and where an AWQ checkpoint was asked for as "awq", which until
    ONE_AWQ_VERSION turned the others off (awq_marlin.py override_quantization_method: "so forcing awq")."""
    if r.on_rocm:
        return not ROCM_KERNELS_VERSION <= r.version < ONE_AWQ_VERSION
    if r.capability is None:
        return False
    if r.capability < (TURING if r.version >= MARLIN_ON_TURING_VERSION else AMPERE):
        return True
    return r.settings.quantization == "awq" and r.storage.rules is not None and r.version < ONE_AWQ_VERSION
