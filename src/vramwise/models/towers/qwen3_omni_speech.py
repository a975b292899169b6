"""The weights of what speaks in Qwen3-Omni: a talker with experts, a predictor of codes, a decoder to sound."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.models.config import Config
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.towers.tower_design import Weight, layer_norm, with_bias

# Defaults of Qwen3OmniMoeTalkerTextConfig, ...TalkerCodePredictorConfig and ...Code2WavConfig (transformers 5.23).
_TALKER: dict[str, object] = {
    "vocab_size": 3072, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 20,
    "num_attention_heads": 16, "num_key_value_heads": 2, "moe_intermediate_size": 384, "num_experts_per_tok": 8,
}  # fmt: skip
_PREDICTOR: dict[str, object] = {
    "vocab_size": 2048, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 5,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "num_code_groups": 32,
}  # fmt: skip
_SOUND: dict[str, object] = {
    "codebook_size": 2048, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16,
    "intermediate_size": 3072, "num_hidden_layers": 8, "num_quantizers": 16, "upsample_rates": [8, 5, 4, 3],
    "upsampling_ratios": [2, 2], "decoder_dim": 1536,
}  # fmt: skip


def talker_config(c: Config) -> Config:
    """The talker's text config with the rest of the talker's beside it."""
    text = (c.table("text_config") or Config({}, c.model_id)).filled(_TALKER)
    own = {
        "thinker_hidden_size": c.size("thinker_hidden_size", default=2048),
        "num_experts": text.size("num_experts", "num_local_experts", default=128),
    }
    return Config({**text.values, **own, "code_predictor_config": c.get("code_predictor_config")}, c.model_id)


def _attention(c: Config, name: str, *, normed: bool) -> Iterator[Weight]:
    width, d = c.hidden_size, c.head_dim
    heads, groups = c.num_attention_heads, c.num_key_value_heads
    rows = {"q": heads * d, "k": groups * d, "v": groups * d}
    for piece, count in rows.items():
        yield f"{name}.{piece}_proj.weight", (count, width)
    yield f"{name}.o_proj.weight", (width, heads * d)
    if c.flag("attention_bias"):
        yield from ((f"{name}.{piece}_proj.bias", (count,)) for piece, count in {**rows, "o": width}.items())
    if normed:
        yield from ((f"{name}.{piece}_norm.weight", (d,)) for piece in "qk")


def _gated(name: str, width: int, inner: int) -> Iterator[Weight]:
    yield from ((f"{name}.{piece}_proj.weight", (inner, width)) for piece in ("gate", "up"))
    yield f"{name}.down_proj.weight", (width, inner)


def _norms(name: str, width: int) -> Iterator[Weight]:
    yield from ((f"{name}.{piece}_layernorm.weight", (width,)) for piece in ("input", "post_attention"))


def talker_weights(c: Config) -> Iterator[Weight]:
    """All but the routed experts."""
    width, inner, heard = c.hidden_size, c.intermediate_size, c.size("thinker_hidden_size")
    shared = c.size("shared_expert_intermediate_size")
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}"
        yield from _attention(c, f"{layer}.self_attn", normed=True)
        yield f"{layer}.mlp.gate.weight", (c.size("num_experts"), width)
        yield from _gated(f"{layer}.mlp.shared_expert", width, shared)
        yield f"{layer}.mlp.shared_expert_gate.weight", (1, width)
        yield from _norms(layer, width)
    yield "model.norm.weight", (width,)
    yield from ((f"{name}.weight", (c.vocab_size, width)) for name in ("model.codec_embedding", "codec_head"))
    for name in ("text_projection", "hidden_projection"):
        yield from with_bias(f"{name}.linear_fc1", inner, heard)
        yield from with_bias(f"{name}.linear_fc2", width, inner)
    yield from _predictor((c.table("code_predictor_config") or Config({}, c.model_id)).filled(_PREDICTOR))


def _predictor(c: Config) -> Iterator[Weight]:
    """The further codes of a step: a table and a head for each group of codes after the first."""
    width = c.hidden_size
    for i in range(c.num_hidden_layers):
        layer = f"code_predictor.model.layers.{i}"
        yield from _attention(c, f"{layer}.self_attn", normed=True)
        yield from _gated(f"{layer}.mlp", width, c.intermediate_size)
        yield from _norms(layer, width)
    yield "code_predictor.model.norm.weight", (width,)
    for i in range(c.size("num_code_groups") - 1):
        for name in ("model.codec_embedding", "lm_head"):
            yield f"code_predictor.{name}.{i}.weight", (c.vocab_size, width)


def experts_of_layer(c: Config) -> Iterator[tuple[str, tuple[Weight, Weight], ExpertMlps]]:
    """The routed experts of each layer, and how many of them a token passes."""
    count, inner, width = c.size("num_experts"), c.size("moe_intermediate_size"), c.hidden_size
    experts = ExpertMlps(num_experts=count, experts_per_token=c.size("num_experts_per_tok"))
    for i in range(c.num_hidden_layers):
        name = f"model.layers.{i}.mlp.experts"
        up, down = (count, 2 * inner, width), (count, width, inner)
        yield name, ((f"{name}.gate_up_proj", up), (f"{name}.down_proj", down)), experts


def sound_weights(c: Config) -> Iterator[Weight]:
    """`code2wav`: a transformer over codes, convolutions that lengthen and narrow it to one wave."""
    c = c.filled(_SOUND)
    width, last = c.hidden_size, c.size("decoder_dim")
    for i in range(c.num_hidden_layers):
        layer = f"pre_transformer.layers.{i}"
        yield from _attention(c, f"{layer}.self_attn", normed=False)
        yield from _gated(f"{layer}.mlp", width, c.intermediate_size)
        yield from _norms(layer, width)
        yield from ((f"{layer}.{half}_layer_scale.scale", (width,)) for half in ("self_attn", "mlp"))
    yield "pre_transformer.norm.weight", (width,)
    yield "code_embedding.weight", (c.size("codebook_size") * c.size("num_quantizers"), width)
    for i, factor in enumerate(c.items("upsampling_ratios") or []):
        yield from with_bias(f"upsample.{i}.0.conv", width, width, factor)
        block = f"upsample.{i}.1"
        yield f"{block}.gamma", (width,)
        yield from with_bias(f"{block}.dwconv.conv", width, 1, 7)
        yield from layer_norm(f"{block}.norm", width)
        yield from with_bias(f"{block}.pwconv1", 4 * width, width)
        yield from with_bias(f"{block}.pwconv2", width, 4 * width)
    yield from with_bias("decoder.0.conv", last, width, 7)
    rates = c.items("upsample_rates") or []
    for i, rate in enumerate(rates):
        given, made, block = last // 2**i, last // 2 ** (i + 1), f"decoder.{i + 1}.block"
        yield from _snake(f"{block}.0", given)
        yield f"{block}.1.conv.weight", (given, made, 2 * rate)
        yield f"{block}.1.conv.bias", (made,)
        for unit in (2, 3, 4):
            for j, kernel in ((1, 7), (2, 1)):
                yield from _snake(f"{block}.{unit}.act{j}", made)
                yield from with_bias(f"{block}.{unit}.conv{j}.conv", made, made, kernel)
    end = last // 2 ** len(rates)
    yield from _snake(f"decoder.{len(rates) + 1}", end)
    yield from with_bias(f"decoder.{len(rates) + 2}.conv", 1, end, 7)


def _snake(name: str, width: int) -> Iterator[Weight]:
    """The two numbers of a learned periodic activation, for each channel."""
    yield from ((f"{name}.{leaf}", (width,)) for leaf in ("alpha", "beta"))
