"""What vLLM's sampler holds while it draws from dummy logits at the end of the profile run."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.allocator import block_bytes
from vramwise.result import Node
from vramwise.serving.common.constants import constant
from vramwise.serving.vllm.pooling import pools
from vramwise.serving.vllm.settings import Resolved

MASKS_VERSION = (0, 17)  # logits are masked by a Triton kernel; before all of them were sorted
FLASHINFER_VERSION = (0, 21)  # FlashInfer draws unless told otherwise
PARAMETERS_VERSION = (0, 33)  # the second runner's dummy pass has every sampling parameter
LEAST_MASKED_ROWS = 8
TOP_K_TOP_P = "top-k and top-p buffer"
SORTED = (("sorted values", 4), ("their places", 8), ("places before", 8), ("second buffers", 12))
"""Bytes a logit of a sort of many rows (torch aten/src/ATen/native/cuda/Sort.cu segmented_sort_pairs: int64 places to
begin with; CUB's second buffers of keys and places)."""

_NATIVE = "vLLM 0.8.5 to 0.33.0 v1/sample/sampler.py, v1/sample/ops/topk_topp_sampler.py"
_TRITON = (
    "vLLM 0.17.1 to 0.33.0 v1/sample/ops/topk_topp_triton.py: one row of logits for each multiprocessor, which stays"
)


def sampler_nodes(model: Model, r: Resolved, rows: int) -> tuple[Node, ...]:
    """Logits of `rows` sequences over the whole vocabulary, on every rank alike, with what is made of them, beside the
    hidden states of all tokens."""
    nodes = [_logits(model, r, rows), _hidden_states(model, r, rows)]
    if _masks_natively(r, rows):
        programs = min(1 << (rows - 1).bit_length(), r.multiprocessors)
        nodes.append(
            Node(TOP_K_TOP_P, block_bytes(programs * model.logit_width * 4), "derived",
                 formula="multiprocessors × vocabulary × 4",
                 inputs={"multiprocessors": r.multiprocessors, "vocabulary": model.logit_width}, source=_TRITON)
        )  # fmt: skip
    return tuple(nodes)


def _draws_natively(r: Resolved) -> bool:
    chosen = r.settings.flashinfer_sampler
    return not (r.version >= FLASHINFER_VERSION if chosen is None else chosen) or r.profile.generation != "V1"


def _masks_natively(r: Resolved, rows: int) -> bool:
    return r.version >= MASKS_VERSION and rows >= LEAST_MASKED_ROWS and _draws_natively(r)


def _logits(model: Model, r: Resolved, rows: int) -> Node:
    """Logits in the model's dtype and in fp32, and what the native sampler makes of them; FlashInfer's and the second
    runner's by the bytes a logit that the version takes."""
    count = rows * model.logit_width
    inputs = {"rows": rows, "vocabulary": model.logit_width}
    name = _per_logit(r)
    if name:
        found = constant("vllm", name, r.version)
        low, expected, high = (round(each * count) for each in (found.low, found.expected, found.high))
        return Node(
            "logits and probabilities", expected, found.kind, low, high, formula="bytes per logit × rows × vocabulary",
            inputs={**inputs, "bytes_per_logit": found.expected}, source=found.source,
        )  # fmt: skip
    size = r.storage.bytes_per_element
    copies = [size] if size == 4 else [size, 4]
    if r.version < MASKS_VERSION:
        copies += [each for _, each in SORTED]
    elif not r.on_v2_runner:
        copies += [4, 4]  # probabilities, noise
    held = sum(block_bytes(each * count) for each in copies)
    # 0.19.0 on H100 printed 2.21 GiB for a model in fp32: one tensor more than its code makes in eager mode
    high = held + (block_bytes(4 * count) if size == 4 and r.version >= MASKS_VERSION else 0)
    return Node(
        "logits and probabilities", held, "derived", sum(each * count for each in copies), high,
        formula="Σ bytes of a logit × rows × vocabulary", inputs={**inputs, "bytes_per_logit": sum(copies)},
        source=_NATIVE,
    )  # fmt: skip


def _per_logit(r: Resolved) -> str:
    """The row of constants.csv with the bytes a logit; none where they are derived."""
    if r.on_v2_runner:
        natively = r.settings.flashinfer_sampler is False and r.version >= PARAMETERS_VERSION
        return "" if natively else "sampler_v2_bytes_per_logit"
    return "" if _draws_natively(r) else "sampler_flashinfer_bytes_per_logit"


def _hidden_states(model: Model, r: Resolved, rows: int) -> Node:
    """Hidden states of all tokens, sampled rows of them, and in the first runner of V1 random ones in their place."""
    row = model.hidden_size * r.storage.bytes_per_element
    drawn = 1 if r.profile.generation == "V0" or r.on_v2_runner else 2
    return Node(
        "hidden states", block_bytes(r.batched_tokens * row) + drawn * block_bytes(rows * row), "derived",
        formula=f"(tokens + {drawn} · rows) × hidden size × dtype",
        inputs={"tokens": r.batched_tokens, "rows": rows, "hidden_size": model.hidden_size},
        source="vLLM v1/worker/gpu_model_runner.py _dummy_run, _dummy_sampler_run",
    )  # fmt: skip


def sampler_state(model: Model, r: Resolved) -> Node | None:
    """What the second model runner's sampler keeps from its start on: counts of tokens for penalties."""
    if not r.on_v2_runner or pools(model, r.settings):  # 0.33.0 v1/worker/gpu/model_runner.py: no sampler
        return None
    per_logit = constant("vllm", "sampler_v2_state_bytes_per_logit", r.version)
    return Node(
        "sampler state", round(per_logit.expected * r.max_num_seqs * model.logit_width), "exact",
        formula="max_num_seqs × vocabulary × (4 + 1/8)",
        inputs={"max_num_seqs": r.max_num_seqs, "vocabulary": model.logit_width}, source=per_logit.source,
    )  # fmt: skip
