"""Qwen3-Omni: a thinker with experts that reads images, sound and text, and, behind it, the parts that speak."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.families.nested import renamed, under
from vramwise.models.families.qwen2_5_omni import tower_of
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.bridge import with_deep_images
from vramwise.models.towers.projector_pieces import deep, joined, norm, tapped, two_products
from vramwise.models.towers.qwen3_omni_speech import experts_of_layer, sound_weights, talker_config, talker_weights
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks


def mergers(b: BlockBuilder, x: Value, tower: Config) -> Value:
    """Squares of patches side by side, two products; one more for each layer whose result goes further in."""
    tokens, out = tower.size("spatial_merge_size") ** 2, tower.size("out_hidden_size")
    widths = (x.width * tokens, out)
    for index, layer in enumerate(tower.items("deepstack_visual_indexes") or ()):
        module = f"merger_list.{index}"
        h = norm(b, joined(b, b.input(tapped(int(layer)), x.width), tokens), f"{module}.ln_q")
        b.hand_on(deep(index), two_products(b, h, (f"{module}.mlp.0", f"{module}.mlp.2"), widths))
    return two_products(b, joined(b, norm(b, x, "merger.ln_q"), tokens), ("merger.mlp.0", "merger.mlp.2"), widths)


def thinker(c: Config) -> tuple[Block, ...]:
    """Both towers, the mergers of patches, the language model."""
    text = text_config(c, "qwen3_omni_moe_text", {})
    audio_config, audio = tower_of(c, "audio_config", "qwen3_omni_moe_audio_encoder")
    vision_config, vision = tower_of(c, "vision_config", "qwen3_omni_moe_vision_encoder")
    b = BlockBuilder("model.visual", part="projector", modality="image")
    merged = mergers(b, b.input("image", vision.width), vision_config)
    embedding, *language = language_blocks(text, "model.language_model", tied=c.flag("tie_word_embeddings"))
    language = with_deep_images(language, len(vision.tapped), text.hidden_size)
    return (
        *tower_blocks(audio_config, audio, "model.audio_tower"), *tower_blocks(vision_config, vision, "model.visual"),
        b.build(image=merged), embedding, image_tokens(text.hidden_size), *language,
    )  # fmt: skip


def speaking(c: Config) -> Block:
    """The weights of the talker and of the model that turns its codes into sound; text alone passes none of them."""
    talker = talker_config(c.table("talker_config") or Config({}, c.model_id))
    b = BlockBuilder("talker", part="speech", modality="audio")
    codes = b.op(
        Undescribed(name="a predictor of codes"),
        "",
        [],
        [1],
        [b.parameter("", name, shape) for name, shape in talker_weights(talker)],
    )[0]
    for module, weights, experts in experts_of_layer(talker):
        parameters = [b.parameter("", name, shape) for name, shape in weights]
        codes = b.op(experts, module, [codes], [1], parameters)[0]
    b.name = "code2wav"
    sounding = sound_weights(c.table("code2wav_config") or Config({}, c.model_id))
    sound = b.op(
        Undescribed(name="a decoder of sound"),
        "",
        [codes],
        [1],
        [b.parameter("", name, shape) for name, shape in sounding],
    )
    return b.build(sound=sound[0])


def blocks(c: Config) -> tuple[Block, ...]:
    """The thinker alone, or with what speaks before it."""
    if c.model_type == "qwen3_omni_moe_thinker":
        return thinker(c)
    inner = c.table("thinker_config") or Config({}, c.model_id)
    thinking = tuple(renamed(block, under("thinker")) for block in thinker(inner))
    return (speaking(c), *thinking) if c.flag("enable_audio_output", True) else thinking
