"""Which head a config asks for, where one `model_type` has several."""

from __future__ import annotations

from typing import Literal

from vramwise.models.config import Config

Task = Literal["causal-lm", "masked-lm", "seq2seq-lm", "none"]

_CLASS_ENDINGS: tuple[tuple[str, Task], ...] = (
    ("ForCausalLM", "causal-lm"), ("LMHeadModel", "causal-lm"), ("GenerationDecoder", "causal-lm"),
    ("ForMaskedLM", "masked-lm"), ("ForConditionalGeneration", "seq2seq-lm"), ("MTModel", "seq2seq-lm"),
    ("Model", "none"), ("Encoder", "none"),
)  # fmt: skip


def task_of(c: Config, default: Task) -> Task:
    """The task of the first class in `architectures` that names one, else a decoder's or the family's own.

    "none" is the bare model, without a head.
    """
    for name in map(str, c.items("architectures") or []):
        for ending, task in _CLASS_ENDINGS:
            if name.endswith(ending):
                return task
    decodes = c.flag("is_decoder") and not c.flag("is_encoder_decoder")
    return "causal-lm" if decodes else default
