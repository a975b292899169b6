"""Gemma 3n with its encoders for images and sound, whose vocabularies the language model reads beside its own."""

from __future__ import annotations

from vramwise.models.blocks import Block, Modality, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families import gemma3n_text
from vramwise.models.families.language import language_blocks
from vramwise.models.families.nested import inside, renamed
from vramwise.models.operations.gemma import AmongTokens
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.towers import mobilenet_v5
from vramwise.models.towers.gemma_sound import AUDIO_3N_DEFAULTS, audio_tower_3n
from vramwise.models.towers.vision_tower import image_tokens

# Defaults of Gemma3nVisionConfig and Gemma3nAudioConfig (transformers 5.23).
_VISION: dict[str, object] = {"hidden_size": 2048, "vocab_size": 128}
_AUDIO: dict[str, object] = {**AUDIO_3N_DEFAULTS, "vocab_size": 128}
_TEXT = "model.language_model"


def merged(b: BlockBuilder, x: Value, c: Config, name: str) -> Value:
    """Tokens of an encoder's own vocabulary: computed for every token, chosen where one is of that vocabulary."""
    h = b.embedding(f"{name}.embedding", c.vocab_size, c.hidden_size, ids=f"{name}.ids", part="projector")
    h = b.rms_norm(h, f"{name}.hard_embedding_norm", style="gemma4", part="projector")
    h = b.linear(h, f"{name}.embedding_projection", x.width, shard="replicated", part="projector")
    h = b.unary(RmsNorm(style="gemma4"), h, f"{name}.embedding_post_projection_norm")
    return b.op(AmongTokens(), "model", [h, x], [x.width])[0]


def softly(c: Config, name: str, modality: Modality, width: int) -> Block:
    """What an encoder makes: a norm of its own, then the projection that its vocabulary has too."""
    b = BlockBuilder(name, part="projector", modality=modality)
    x = b.rms_norm(b.input(modality, c.hidden_size), "soft_embedding_norm", style="gemma4", part="projector")
    x = b.linear(x, "embedding_projection", width, shard="replicated", part="projector")
    return b.build(**{modality: b.unary(RmsNorm(style="gemma4"), x, "embedding_post_projection_norm")})


def blocks(c: Config) -> tuple[Block, ...]:
    """Encoders, which run only for batches with such input, and the language model."""
    text, vision, audio = (c.table(f"{n}_config") or Config({}, c.model_id) for n in ("text", "vision", "audio"))
    text = gemma3n_text.with_defaults(Config({**text.values, "model_type": "gemma3n_text"}, c.model_id))
    vision, audio = vision.filled(_VISION), audio.filled(_AUDIO)
    if vision.hidden_size != mobilenet_v5.WIDTH:
        raise c.error(f"vision_config: hidden_size must be {mobilenet_v5.WIDTH}, what its encoder makes")

    def merge(b: BlockBuilder, x: Value) -> Value:
        for name, config in (("embed_vision", vision), ("embed_audio", audio)):
            x = merged(b, x, config, f"model.{name}")
        return x

    first, second = gemma3n_text.embeddings(text, merge)
    others = tuple(p.name for op in first.ops for p in op.parameters if p.part == "projector")
    place, width = inside(_TEXT), text.hidden_size
    first = renamed(first, lambda name: name if name in others else place(name))
    _, _, *language = language_blocks(text, _TEXT, tied=c.flag("tie_word_embeddings", True), capped=True)
    return (
        *mobilenet_v5.tower(vision, "model.vision_tower.timm_model"),
        softly(vision, "model.embed_vision", "image", width), *audio_tower_3n(audio, "model.audio_tower"),
        softly(audio, "model.embed_audio", "audio", width), first, image_tokens(width, listed=False),
        renamed(second, place), *language,
    )  # fmt: skip
