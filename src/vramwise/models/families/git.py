"""GIT: a causal post-norm decoder that reads a CLIP tower's patches before the text."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder
from vramwise.models.config import Config
from vramwise.models.towers.vision_tower import Tower, layer_norm, num_patches, pair, tower_blocks

# Defaults of GitConfig and GitVisionConfig (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 1024,
}  # fmt: skip
_VISION: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 16, "hidden_act": "quick_gelu",
}  # fmt: skip


def not_counted(c: Config) -> str:
    """What an estimate says that it leaves out."""
    return "activations of images"


def tower(c: Config) -> Tower:
    """CLIP's image encoder."""
    width, weights = c.hidden_size, "vision_model.embeddings"
    return Tower(
        width=width, intermediate_size=c.intermediate_size, num_layers=c.num_hidden_layers,
        num_heads=c.num_attention_heads, function=c.text("hidden_act"), layers="vision_model.encoder.layers",
        before=(
            (f"{weights}.class_embedding", (width,)),
            (f"{weights}.patch_embedding.weight", (width, c.size("num_channels"), *pair(c, "patch_size"))),
            (f"{weights}.position_embedding.weight", (num_patches(c) + 1, width)),
            *layer_norm("vision_model.pre_layrnorm", width),
        ),
        after=layer_norm("vision_model.post_layernorm", width),
    )  # fmt: skip


def projector(c: Config, width: int) -> Block:
    """A product and a norm, and an embedding for each frame of a video where there are such."""
    b = BlockBuilder("git", part="projector", modality="image")
    x = b.input("image", width)
    frames = c.size("num_image_with_embedding", default=0, least=0)
    if frames > c.size("max_position_embeddings"):
        raise c.error(f"num_image_with_embedding ({frames}) is more than max_position_embeddings")
    if frames:
        tables = [b.parameter("img_temporal_embedding", str(i), (1, 1, width)) for i in range(frames)]
        x = b.unary("hold", x, "img_temporal_embedding", tables)
    module = "visual_projection.visual_projection"
    x = b.linear(x, f"{module}.0", c.hidden_size, bias=True)
    return b.build(image=b.layer_norm(x, f"{module}.1", part="projector"))


def embedding(c: Config) -> Block:
    """Tokens plus positions, norm, dropout."""
    b, rows = BlockBuilder("git.embeddings", part="embedding"), c.size("max_position_embeddings")
    x = b.embedding("word_embeddings", c.vocab_size, c.hidden_size)
    table = b.parameter("position_embeddings", "weight", (rows, x.width))
    ids = {"ids": "position_ids", "buffer_rows": rows}
    positions = b.op("embedding", "position_embeddings", [], [x.width], [table], **ids)[0]
    x = b.layer_norm(b.op("add_in_place", "", [x, positions], [x.width])[0], "LayerNorm")
    return b.build(hidden=b.dropout(x, c.number("hidden_dropout_prob", 0.1)))


def layer(c: Config, index: int) -> Block:
    """Attention over what came before, MLP; a norm after each."""
    b, dropout = BlockBuilder(f"git.encoder.layer.{index}", layer=index), c.number("hidden_dropout_prob", 0.1)
    x, heads, b.part = b.input("hidden", c.hidden_size), c.num_attention_heads, "attention"
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"attention.self.{name}", x.width, bias=True), heads))
        for name in ("query", "key", "value")
    )
    h = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, module="attention.self", style="plain", eager_only=True,
        dropout=c.number("attention_probs_dropout_prob", 0.1),
    )  # fmt: skip
    h = b.dropout(b.linear(h, "attention.output.dense", x.width, bias=True, shard="row"), dropout)
    x, b.part = b.layer_norm(b.add(h, x), "attention.output.LayerNorm"), "mlp"
    h = b.activation(b.linear(x, "intermediate.dense", c.intermediate_size, bias=True), c.text("hidden_act", "gelu"))
    h = b.dropout(b.linear(h, "output.dense", x.width, bias=True, shard="row"), dropout)
    return b.build(hidden=b.layer_norm(b.add(h, x), "output.LayerNorm"))


def blocks(c: Config) -> tuple[Block, ...]:
    """The tower and its projector, which run only for batches with images, and the decoder."""
    c = c.filled(_DEFAULTS)
    vision = (c.table("vision_config") or Config({}, c.model_id)).filled(_VISION)
    eyes = tower(vision)
    layers = [layer(c, i) for i in range(c.num_hidden_layers)]
    b = BlockBuilder("", part="head")
    tied_to = "git.embeddings.word_embeddings.weight" if c.flag("tie_word_embeddings") else None
    head = b.linear(b.input("hidden", c.hidden_size), "output", c.vocab_size, bias=True, shard="vocab", tied_to=tied_to)
    images = (*tower_blocks(vision, eyes, "git.image_encoder"), projector(c, eyes.width))
    return (*images, embedding(c), *layers, b.build(logits=head))
