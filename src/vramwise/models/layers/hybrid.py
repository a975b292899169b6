"""Pieces that decoders with layers of different mixers share: kinds of layers, short convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.blocks import BlockBuilder, Value
from vramwise.models.config import Config

_OLD_NAMES = {"mamba": "linear_attention", "attention": "full_attention"}
"""Kinds of layers as older configs spell them (transformers 5.23, configuration_utils.py)."""


def old_names(kinds: Sequence[object]) -> list[str]:
    """Kinds of layers under the names that the library has for them now."""
    return [_OLD_NAMES.get(str(kind), str(kind)) for kind in kinds]


def layer_kinds(c: Config, default: Sequence[str], *, key: str = "layer_types", allowed: Sequence[str]) -> list[str]:
    """The kind of each layer by the config's list, else by the class's default; names beyond the last layer are not
    looked at."""
    given = c.items(key)
    kinds = old_names(default if given is None else given)
    if len(kinds) < c.num_hidden_layers:
        raise c.error(f"{key} names {len(kinds)} layers, num_hidden_layers is {c.num_hidden_layers}")
    kinds = kinds[: c.num_hidden_layers]
    for kind in kinds:
        if kind not in allowed:
            raise c.error(f'{key}: "{kind:.40}" is no kind of layer; known are {", ".join(allowed)}')
    return kinds


def every(c: Config, period: int, *, first: int = 1) -> list[str]:
    """Every `period`th layer full, the others linear."""
    layers = range(c.num_hidden_layers)
    return ["linear_attention" if (i + first) % period else "full_attention" for i in layers]


def short_convolution(
    b: BlockBuilder, x: Value, module: str, kernel: int, *, function: str | None, bias: bool = False
) -> Value:
    """A causal convolution over positions, each channel for itself, and its activation; `x` is channels-first."""
    parameters = [b.parameter(module, "weight", (x.width, 1, kernel), shard="column")]
    if bias:
        parameters.append(b.parameter(module, "bias", (x.width,), shard="column"))
    return b.unary("causal_conv1d", x, module, parameters, function=function)


def grouped_attention(
    b: BlockBuilder, x: Value, c: Config, module: str = "self_attn", *, bias: bool = False, turned: str | None = "half",
    columns: int | None = None, table: str = "default", norms: tuple[str, str] | None = None, output: str = "o_proj",
    output_bias: bool = False, window: int | None = None, scaled_keys: bool = False, width: int | None = None,
    head_dim: int | None = None,
) -> Value:  # fmt: skip
    """Grouped-query attention; `turned`: how the first `columns` of each head turn, None without positions; `norms`:
    modules that norm queries and keys by head; `width`: that of the result where it is not the input's."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, head_dim or c.head_dim
    q = b.heads(b.linear(x, f"{module}.q_proj", heads * d, bias=bias), heads)
    q = b.heads_first(b.rms_norm(q, f"{module}.{norms[0]}") if norms else q)
    k = b.heads(b.linear(x, f"{module}.k_proj", groups * d, bias=bias), groups)
    k = b.heads_first(b.rms_norm(k, f"{module}.{norms[1]}") if norms else k)
    k = b.scale(k) if scaled_keys else k
    v = b.heads_first(b.heads(b.linear(x, f"{module}.v_proj", groups * d, bias=bias), groups))
    if turned is not None:
        q, k = b.rotary(q, k, rotary_dim=columns, style=turned, table=table)
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=groups, module=module, window=window,
        dropout=c.number("attention_dropout"),
    )  # fmt: skip
    return b.linear(mixed, f"{module}.{output}", width or x.width, bias=output_bias, shard="row")
