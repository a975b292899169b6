"""What would have made room: for each kind of memory the changes that touch it, the mildest first.

A change is mild when results stay the same (a kernel, the allocator), less so when time goes up (recomputation, smaller
batches), and strong when the method changes (quantization, adapters).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Change:
    """Something to set, the most it frees (None where the report does not tell), and what it costs."""

    what: str
    frees: int | None
    cost: str


@dataclass(frozen=True, slots=True)
class _Row:
    """A change to one kind of memory and the share of it that goes, at most."""

    kind: str
    share: float
    what: str
    cost: str


_FULL_CHECKPOINTING: Final = 0.9  # of a model of some thirty layers one layer and the boundaries stay
_ROWS: Final = (
    _Row("optimizer temporaries", 1.0, "optimizer_impl fused: AdamW(..., fused=True)", "none"),
    _Row("attention scores", 1.0, "attention sdpa: attn_implementation='sdpa' (or flash)", "none"),
    _Row("logits and loss", 0.9, "loss fused-linear (Liger, cut cross-entropy) or chunked", "needs that library"),
    _Row("communication buffers", 0.5, "reshard_after_forward True, smaller prefetch and reduce buckets", "some speed"),
    _Row("activations", _FULL_CHECKPOINTING, "checkpointing full: gradient_checkpointing_enable()", "30 % more time"),
    _Row("activations", 0.5, "micro_batch_size halved, gradient_accumulation_steps doubled", "some speed"),
    _Row("logits and loss", 0.5, "micro_batch_size halved, gradient_accumulation_steps doubled", "some speed"),
    _Row("attention scores", 0.5, "sequence_length cut to 0.7 of it", "shorter texts"),
    _Row("KV cache", 0.5, "half the batch, or half the tokens in flight", "throughput"),
    _Row("KV cache", 0.5, "an 8-bit KV cache", "a little quality at long context"),
    _Row("optimizer states", 0.75, "optimizer adamw-8bit", "needs bitsandbytes or torchao"),
    _Row("optimizer states", 1.0, "offload_optimizer cpu (ZeRO-Offload, FSDP CPU offload)", "slower steps"),
    _Row("gradients", 1.0, "method lora: adapters train, the model does not", "another method"),
    _Row("optimizer states", 1.0, "method lora: adapters train, the model does not", "another method"),
    _Row("weights", 0.5, "dtype bf16, where the weights are fp32", "16-bit weights"),
    _Row("weights", 0.7, "4-bit weights (bitsandbytes nf4, awq, gptq)", "some quality"),
    _Row("unpacked weights", 0.5, "micro_batch_size halved: the unpacked weight itself stays", "some speed"),
    _Row("other", 0.5, "a smaller batch or shorter texts", "some speed"),
    _Row("other", 0.5, "checkpointing full (training), fewer tokens in flight (inference)", "some speed"),
)  # fmt: skip


def changes_for(holdings: Mapping[str, int | None], kind: str) -> list[Change]:
    """Changes that touch the kind of the failing request, and those for other kinds that are known to hold memory.

    `holdings` maps a kind to its bytes (None: not known). Mildest first; a change that several kinds share counts once,
    with what it frees in all of them.
    """
    touched = {kind, "activations"} if kind == "gradients" else {kind}  # backward frees activations as it goes
    found: dict[str, Change] = {}
    for row in _ROWS:
        size = holdings.get(row.kind)
        if row.kind not in touched and not size:
            continue
        frees = round(size * row.share) if size else None
        before = found.get(row.what)
        if before is not None and before.frees is not None and frees is not None:
            frees += before.frees
        found[row.what] = Change(row.what, frees, row.cost)
    own = {row.what for row in _ROWS if row.kind in touched}
    return sorted(found.values(), key=lambda change: change.what not in own)


def two_smallest(changes: list[Change], shortfall: int | None) -> tuple[Change, ...]:
    """The two mildest that free enough by what is known; else the two that free most; unknown ones count as enough."""
    if shortfall is None:
        return tuple(changes[:2])
    enough = [change for change in changes if change.frees is None or change.frees >= shortfall]
    rest = sorted((c for c in changes if c not in enough), key=lambda change: -(change.frees or 0))
    return tuple((enough + rest)[:2])
