"""Bark: two GPTs write codes of meaning and of coarse sound, a third all finer codes, EnCodec makes sound of them.

The parameters are those of `BarkModel` in transformers 5.23, with the masks and codebooks that it registers beside
them; what training keeps, and what the three hold while they write, is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.encodec import codec_buffers, codec_weights
from vramwise.models.towers.known_weights import known_weights, product
from vramwise.models.towers.tower_design import Weight

PART: dict[str, object] = {
    "block_size": 1024, "input_vocab_size": 10_048, "output_vocab_size": 10_048, "num_layers": 12, "num_heads": 12,
    "hidden_size": 768, "bias": True, "n_codes_total": 8, "n_codes_given": 1,
}  # fmt: skip
"""Defaults of the configuration classes of its three GPTs."""
MOST_CODES = 1024


def task(c: Config) -> str:
    """Its parts predict codes for one another, in a loop of the class's own."""
    return "none"


def norm(name: str, width: int, bias: bool) -> list[Weight]:
    """A layer norm, with a bias or without."""
    return [(f"{name}.weight", (width,)), *([(f"{name}.bias", (width,))] if bias else [])]


def layer(c: Config, *, causal: bool) -> list[Weight]:
    """A pre-norm layer; norms of the third GPT have a bias whatever the config says."""
    width, bias = c.hidden_size, c.flag("bias", True)
    c.heads_of(width)
    found = [*norm("layernorm_1", width, bias or not causal), *norm("layernorm_2", width, bias or not causal)]
    found += [*product("attn.att_proj", 3 * width, width, bias), *product("attn.out_proj", width, width, bias)]
    return [*found, *product("mlp.in_proj", 4 * width, width, bias), *product("mlp.out_proj", width, 4 * width, bias)]


def gpt(c: Config, name: str, table: list[Weight], heads: list[Weight], tied: dict[str, str]) -> list[Block]:
    """Tables, layers, a norm and heads; a mask of all positions is registered in each causal layer."""
    causal, width, rows = not tied, c.hidden_size, c.size("block_size")
    places: Weight = ("position_embeds_layer.weight", (rows, width))
    masks: list[Weight] = [("attn.bias", (1, 1, rows, rows))] if causal else []

    def block(below: str, weights: list[Weight], index: int | None = None, made: list[Weight] | None = None) -> Block:
        return known_weights(
            below, weights, "a GPT of codes", part="audio", modality="audio", layer=index, tied=tied,
            buffers=made or (), buffer_dtype="bool",
        )  # fmt: skip

    layers = [block(f"{name}.layers.{i}", layer(c, causal=causal), i, masks) for i in range(c.num_hidden_layers)]
    last = [*norm("layernorm_final", width, c.flag("bias", True) or not causal), *heads]
    return [block(name, [*table, places]), *layers, block(name, last)]


def writer(c: Config, name: str) -> list[Block]:
    """A GPT of one code a step."""
    table: Weight = ("input_embeds_layer.weight", (c.size("input_vocab_size"), c.hidden_size))
    head = product("lm_head", c.size("output_vocab_size"), c.hidden_size, bias=False)
    return gpt(c, name, [table], head, {})


def refiner(c: Config) -> list[Block]:
    """A table for each code, and a head for each that is not given, tied to the next code's table."""
    total, given, width = c.size("n_codes_total"), c.size("n_codes_given"), c.hidden_size
    if not given < total <= MOST_CODES:
        raise c.error(f"n_codes_given ({given}) leaves nothing of n_codes_total ({total}, at most {MOST_CODES:,})")
    rows = c.size("input_vocab_size")
    if c.size("output_vocab_size") != rows:
        raise c.error(f"output_vocab_size: its heads are its tables, of {rows:,} rows")
    tables: list[Weight] = [(f"input_embeds_layers.{i}.weight", (rows, width)) for i in range(total)]
    heads = [weight for i in range(total - given) for weight in product(f"lm_heads.{i}", rows, width, bias=False)]
    tied = {f"lm_heads.{i}.weight": f"fine_acoustics.input_embeds_layers.{i + 1}.weight" for i in range(total - given)}
    return gpt(c, "fine_acoustics", tables, heads, tied)


def blocks(c: Config) -> tuple[Block, ...]:
    """The three GPTs and the codec."""
    codec = c.table("codec_config") or Config({}, c.model_id)
    if codec.model_type not in ("", "encodec"):
        raise c.error(f"codec_config: only encodec is described here, not {codec.model_type:.40}")
    parts = {name: c.part(f"{name}_config", PART) for name in ("semantic", "coarse_acoustics", "fine_acoustics")}
    return (
        *writer(parts["semantic"], "semantic"), *writer(parts["coarse_acoustics"], "coarse_acoustics"),
        *refiner(parts["fine_acoustics"]),
        known_weights("codec_model", codec_weights(codec), "a codec of sound", part="audio", modality="audio",
                      buffers=codec_buffers(codec)),
    )  # fmt: skip
