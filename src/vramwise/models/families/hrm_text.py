"""HRM Text: two stacks of layers that run in cycles on a slow and a fast state, most cycles without a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import renamed
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.operations.streams import RepeatedVector

# Defaults of HrmTextConfig (transformers 5.23); its class has no grouped queries.
_DEFAULTS: dict[str, object] = {
    "vocab_size": 151_808, "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16,
    "num_attention_heads": 12, "head_dim": 128,
}  # fmt: skip
_MOST_RUNS = 4096


def design(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm_style="unweighted", qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"),
        gate=("gate_proj", "sigmoid_of_biased" if bias else "sigmoid"),
    )  # fmt: skip


def start(c: Config) -> Block:
    """The slow state begins as the scaled embedding, the fast one as a vector that is never trained."""
    b, width = BlockBuilder("model"), c.hidden_size
    slow = b.scale(b.embedding("embed_tokens", c.vocab_size, width))
    vector = b.parameter("", "z_L_init", (width,), part="embedding", frozen=True)
    return b.build(slow=slow, fast=b.unary(RepeatedVector(), slow, "", [vector]))


def stack(c: Config, module: str, first: int) -> Iterator[Block]:
    """One run of a stack: the sum of both states, its layers, a norm whose result is the stack's next state."""
    b, state = BlockBuilder(""), "slow" if module == "H_module" else "fast"
    other = "fast" if state == "slow" else "slow"
    yield b.build(hidden=b.add(b.input(state, c.hidden_size), b.input(other, c.hidden_size)))
    for i in range(c.size("num_layers_per_stack", "num_hidden_layers")):
        block = decoder.layer(c, design(c), i, LayerKind())
        named = renamed(block, lambda name: name.replace("model.layers", f"model.{module}.layers", 1))
        yield replace(named, layer=first + i)
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "", style="unweighted")
    yield b.build(**{state: x, "hidden": x})


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, cycles of the fast stack each followed by one of the slow stack, head."""
    c = c.filled(_DEFAULTS)
    c = Config({**c.values, "num_key_value_heads": None}, c.model_id)
    per_stack = c.size("num_layers_per_stack", "num_hidden_layers")
    slow, fast = c.size("H_cycles", default=2), c.size("L_cycles", default=3)
    if per_stack * slow * (fast + 1) > _MOST_RUNS:
        raise c.error(f"num_layers_per_stack · H_cycles · (L_cycles + 1) is more than {_MOST_RUNS:,}")
    given = c.items("L_bp_cycles") or [2]
    trained = [Config({"L_bp_cycles": n}, c.model_id).size("L_bp_cycles", least=0) for n in given]
    trained = [*[1] * (slow - len(trained)), *trained]
    body: list[Block] = [start(c)]
    for cycle in range(slow):
        for step in range(fast):
            run = stack(c, "L_module", (cycle * (fast + 1) + step) * per_stack)
            body += [replace(block, no_grad=step < fast - trained[cycle]) for block in run]
        body += stack(c, "H_module", (cycle * (fast + 1) + fast) * per_stack)
    b = BlockBuilder("", part="head")
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    logits = b.linear(b.input("hidden", c.hidden_size), "lm_head", c.vocab_size, shard="vocab", tied_to=tied_to)
    return (*body, b.build(logits=logits))
