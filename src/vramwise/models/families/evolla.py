"""Evolla: a Llama that answers about a protein, which an ESM reads and some layers look at.

Parameters and the cache of the text are exact; what training keeps of the protein is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.known_weights import ProductWeight, inside, known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "max_position_embeddings": 8192,
    "aligner_ffn_mult": 4, "aligner_enable_bias": True, "aligner_num_add_layers": 8, "resampler_depth": 6,
    "resampler_dim_head": 64, "resampler_heads": 8, "resampler_num_latents": 64, "resampler_ff_mult": 4,
}  # fmt: skip
"""Defaults of `EvollaConfig`."""
PROTEIN_DEFAULTS: dict[str, object] = {
    "vocab_size": 446, "hidden_size": 1280, "num_hidden_layers": 33, "num_attention_heads": 20,
    "intermediate_size": 5120, "max_position_embeddings": 1026, "position_embedding_type": "rotary",
}  # fmt: skip
"""Defaults of `SaProtConfig` (transformers 5.23)."""
_ENCODER = "model.protein_encoder"


def task(c: Config) -> str:
    """It writes text."""
    return "causal-lm"


def protein_encoder(p: Config) -> list[Weight]:
    """An ESM without its head."""
    width, inner = p.hidden_size, p.intermediate_size
    p.heads_of(width)
    found: list[Weight] = [("embeddings.word_embeddings.weight", (p.vocab_size, width))]
    if p.text("position_embedding_type") == "absolute":
        found.append(("embeddings.position_embeddings.weight", (p.size("max_position_embeddings"), width)))
    found += norms(["embeddings.layer_norm"], width) if p.flag("emb_layer_norm_before") else ()
    layer = products([f"attention.self.{name}" for name in ("query", "key", "value")], width, width)
    layer += [*product("attention.output.dense", width, width), *norms(["attention.LayerNorm", "LayerNorm"], width)]
    layer += [*product("intermediate.dense", inner, width), *product("output.dense", width, inner)]
    found += [weight for i in range(p.num_hidden_layers) for weight in inside(f"encoder.layer.{i}", layer)]
    return [*found, *norms(["encoder.emb_layer_norm_after"], width)]


def feed_forward(name: str, width: int, ratio: int) -> list[Weight]:
    """A norm and two products without biases."""
    return [*norms([f"{name}.norm"], width), *product(f"{name}.fc1", ratio * width, width, bias=False),
            *product(f"{name}.fc2", width, ratio * width, bias=False)]  # fmt: skip


def resampler(c: Config, read: int) -> list[Weight]:
    """Learned latents that ask the protein, layer by layer, and a product to the text's width."""
    inner = c.size("resampler_dim_head") * c.size("resampler_heads")
    layer = [*norms(["0.norm_media", "0.norm_latents"], read), *product("0.to_q", inner, read, bias=False)]
    layer += [*product("0.to_kv", 2 * inner, read, bias=False), *product("0.to_out", read, inner, bias=False)]
    layer += feed_forward("1", read, c.size("resampler_ff_mult"))
    found: list[Weight] = [("latents", (c.size("resampler_num_latents"), read))]
    found += [weight for i in range(c.size("resampler_depth")) for weight in inside(f"layers.{i}", layer)]
    return [*found, *norms(["norm"], c.hidden_size), *product("protein_projector", c.hidden_size, read)]


def adapter(c: Config, index: int) -> Block:
    """A layer's look at the protein, behind a gate."""
    b = BlockBuilder(f"model.layers.{index}.adapter", part="attention")
    width, heads = c.hidden_size, c.heads_of(c.hidden_size)
    weights: list[Weight] = [
        ("gate_attention", (1,)), ("gate_ffw", (1,)),
        *products(["query", "key_protein", "value_protein"], heads * (width // heads), width),
        ("attention_norm.weight", (width,)), *product("out_proj", width, width, c.flag("aligner_enable_bias")),
        *feed_forward("ff", width, c.size("aligner_ffn_mult")),
    ]  # fmt: skip
    held = [b.parameter("", w[0], w[1], is_linear=isinstance(w, ProductWeight)) for w in weights]
    x = b.input("hidden", width)
    return b.build(hidden=b.unary(Undescribed(name="attention to a protein"), x, "", held))


def blocks(config: Config) -> tuple[Block, ...]:
    """The protein's encoder and resampler, and the text's layers, of which every few look at the protein."""
    c, protein = config.filled(CLASS_DEFAULTS), config.part("protein_encoder_config", PROTEIN_DEFAULTS)
    # the class ties nothing, whatever its config says
    llama = Config({**c.values, "model_type": "llama", "architectures": None, "tie_word_embeddings": False}, c.model_id)
    first, *layers, last = language_model(llama, lambda old: old)
    every = max(c.num_hidden_layers // c.size("aligner_num_add_layers"), 1)
    text = []
    for i, block in enumerate(layers):
        text += [block, adapter(c, i)] if (i + 1) % every == 0 else [block]
    latents = resampler(c, protein.hidden_size)
    return (
        known_weights(f"{_ENCODER}.model", protein_encoder(protein), "an encoder of proteins"),
        known_weights(f"{_ENCODER}.sequence_compressor_resampler", latents, "a resampler", part="projector"),
        first, *text, last,
    )  # fmt: skip
