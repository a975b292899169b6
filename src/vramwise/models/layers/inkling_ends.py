"""What comes before and after Inkling's layers: the config's names, which layers slide, logits without padding."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config

_OTHER_NAMES = {
    "sliding_window": "sliding_window_size", "num_local_experts": "n_routed_experts",
    "sconv_kernel_size": "conv_kernel_size",
}  # fmt: skip
"""Names in published configs -> the classes' own."""


def own_names(c: Config) -> dict[str, object]:
    """The config's values under the classes' own names."""
    return {_OTHER_NAMES.get(name, name): value for name, value in c.values.items()}


def sliding_layers(c: Config, local: list[object] | None = None) -> list[bool]:
    """By the kinds of layers, else those that `local` numbers, else five layers of six."""
    types = c.layer_types()
    if types is not None:
        return [kind == "hybrid_sliding" for kind in types]
    return [i in local if local is not None else (i + 1) % 6 > 0 for i in range(c.num_hidden_layers)]


def without_padding(b: BlockBuilder, logits: Value, c: Config) -> Value:
    """The logits of the vocabulary without the rows that fill up the table."""
    kept = c.size("unpadded_vocab_size", default=c.vocab_size)
    return b.split(logits, [kept, c.vocab_size - kept])[0] if kept < c.vocab_size else logits
