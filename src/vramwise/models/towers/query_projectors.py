"""Projectors with learned queries that read the patches by attention: Aria's and Idefics 2's."""

from __future__ import annotations

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyAttention, HeadedAttention, sdpa_attention
from vramwise.models.operations.tiles import eager_masked_attention, sdpa_masked_attention
from vramwise.models.towers.projector_pieces import Ends, gated, norm
from vramwise.records import record


def queries_by_patches(c: Config) -> dict[int, int]:
    """How many queries read an image of so many patches."""
    table = c.table("projector_patch_to_query_dict") or Config({"1225": 128, "4900": 256})
    if not table.values or not all(str(name).isdecimal() for name in table.values):
        raise c.error("projector_patch_to_query_dict: expected numbers of patches with numbers of queries")
    return {int(name): table.size(name) for name in table.values}


def aria(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Learned queries that read the patches by attention, then a plain MLP."""
    counts = queries_by_patches(e.model)
    width, queries = x.width, max(counts.values())
    h = norm(b, x, "cross_attn.layer_norm_kv")
    k, v = (b.linear(h, f"cross_attn.{name}_proj", width) for name in "kv")
    q = b.unary(
        Queries(by_patches=tuple(counts.items())),
        x,
        "",
        [b.parameter("", "query", (queries, width))],
    )
    q = b.linear(norm(b, q, "cross_attn.layer_norm"), "cross_attn.q_proj", width)
    inner = "cross_attn.multihead_attn"
    weights = [
        b.parameter(inner, "in_proj_weight", (3 * width, width)), b.parameter(inner, "in_proj_bias", (3 * width,)),
        b.parameter(inner, "out_proj.weight", (width, width), is_linear=True),
        b.parameter(inner, "out_proj.bias", (width,)),
    ]  # fmt: skip
    mixed = b.op(MultiheadAttention(num_heads=e.tower.num_attention_heads), inner, [q, k, v], [width], weights)[0]
    mixed = norm(b, b.linear(mixed, "cross_attn.linear", width, bias=True), "layer_norm")
    h = b.activation(b.linear(mixed, "feed_forward.linear_in", e.width), "gelu_new")
    return b.linear(h, "feed_forward.linear_out", e.width, shard="row")


# Defaults of Idefics2PerceiverConfig (transformers 5.23).
_PERCEIVER = {
    "resampler_n_latents": 64, "resampler_depth": 3, "resampler_n_heads": 16, "resampler_head_dim": 96,
    "num_key_value_heads": 4,
}  # fmt: skip


def idefics2(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A gated MLP, then learned latents that read the patches by attention, layer by layer."""
    text = e.model.table("text_config") or Config({}, e.model.model_id)
    inner = text.size("intermediate_size", default=14_336)
    x = gated(b, x, inner, e.width, "modality_projection.")
    c = (e.model.table("perceiver_config") or Config({}, e.model.model_id)).filled(_PERCEIVER)
    heads, groups, d = c.size("resampler_n_heads"), c.size("num_key_value_heads"), c.size("resampler_head_dim")
    name = "perceiver_resampler"
    latents = b.parameter(name, "latents", (c.size("resampler_n_latents"), e.width))
    q = b.unary(Queries(), x, name, [latents])
    for i in range(c.size("resampler_depth", least=0)):
        layer = f"{name}.layers.{i}"
        h = b.rms_norm(q, f"{layer}.input_latents_norm", part="projector")
        context = b.rms_norm(x, f"{layer}.input_context_norm", part="projector")
        read = b.op(JoinedTokens(), layer, [context, h], [e.width])[0]
        pieces = ((h, "q", heads), (read, "k", groups), (read, "v", groups))
        heads_of = [b.linear(y, f"{layer}.self_attn.{piece}_proj", count * d) for y, piece, count in pieces]
        mixed = b.op(
            Resampling(
                num_heads=heads,
                num_key_value_heads=groups,
                dropout=c.number("attention_dropout", 0.0),
                causal=False,
                window=None,
            ),
            layer,
            heads_of,
            [heads * d],
        )[0]
        q = b.add(q, b.linear(mixed, f"{layer}.self_attn.o_proj", e.width, shard="row"))
        h = b.rms_norm(q, f"{layer}.post_attention_layernorm", part="projector")
        q = b.add(q, gated(b, h, 4 * e.width, e.width, f"{layer}.mlp."))
    return b.rms_norm(q, f"{name}.norm", part="projector")


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class Queries(Operation):
    by_patches: tuple[tuple[int, int], ...] = ()


@lowering(Queries)
def queries(run: Lowering, op: Queries, x: Tensor) -> Tensor:
    """As many queries as that many patches have, a copy for each image; else all of them, not copied.

    Raises UnsupportedModelError.
    """
    tape, (table,) = run.tape, run.parameters_of(op)
    if not op.by_patches:
        return tape.expand(tape.unsqueeze(table, 0), x.shape[0], *table.shape)
    counts = dict(op.by_patches)
    patches = x.shape[1]
    assert isinstance(patches, int)
    if patches not in counts:
        said = ", ".join(str(count) for count in counts)
        raise UnsupportedModelError(f"images of {patches} patches: projector_patch_to_query_dict has {said}")
    return tape.repeat_rows(tape.unsqueeze(tape.narrow(table, 0, counts[patches]), 0), x.shape[0])


class JoinedTokens(Operation):
    __slots__ = ()


@lowering(JoinedTokens)
def joined_tokens(run: Lowering, op: JoinedTokens, *parts: Tensor) -> Tensor:
    """One behind the other."""
    return run.tape.cat(list(parts), 1)


class Resampling(AnyAttention):
    __slots__ = ()


@lowering(Resampling)
def resampling(run: Lowering, op: Resampling, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries read patches and themselves, with a mask where patches are padding (Idefics 2)."""
    tape, images = run.tape, run.execution.images
    heads, groups = op.num_heads, op.num_key_value_heads
    pieces = ((q, heads), (k, groups), (v, groups))
    q, k, v = (tape.transpose(tape.view(x, *x.shape[:2], n, x.shape[-1] // n), 1, 2) for x, n in pieces)
    eager, key = run.execution.attention == "eager", "mask of queries"
    if images is not None and images.padded_to and key not in run.tables:
        dtype = run.hidden_dtype if eager else "bool"
        run.tables[key] = (tape.new((q.shape[0], 1, q.shape[2], k.shape[2]), dtype, op="mask"),)
    (mask,) = run.tables.get(key, (None,))
    if eager:
        out = eager_masked_attention(run, op, q, k, v, mask)
    else:
        out = sdpa_attention(run, op, q, k, v) if mask is None else sdpa_masked_attention(run, op, q, k, v, mask)
    return tape.reshape(out, *out.shape[:2], -1)


class MultiheadAttention(HeadedAttention):
    __slots__ = ()


@lowering(MultiheadAttention)
def multihead_attention(run: Lowering, op: MultiheadAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`nn.MultiheadAttention`, batch first, which hands back its weights too, so that no kernel fuses it."""
    tape, heads = run.tape, op.num_heads
    weight, bias, out_weight, out_bias = run.parameters_of(op)
    n, length, width = q.shape
    weights_of, biases = (tape.split(tape.unleafed(p), [width] * 3, 0) for p in (weight, bias))
    pieces = zip((q, k, v), weights_of, biases, strict=True)
    q, k, v = (tape.linear(tape.transpose(x, 0, 1), w, b) for x, w, b in pieces)
    q, k, v = (tape.transpose(tape.view(x, x.shape[0], n * heads, width // heads), 0, 1) for x in (q, k, v))
    weights = tape.softmax(tape.matmul(tape.scale(q), tape.transpose(k, 1, 2)))
    mixed = tape.reshape(tape.transpose(tape.matmul(weights, v), 0, 1), length * n, width)
    out = tape.view(tape.linear(mixed, out_weight, out_bias), length, n, width)
    return tape.transpose(out, 0, 1)
