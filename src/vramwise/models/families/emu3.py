"""Emu 3: a Llama with dropouts after attention and MLP, and a tokenizer for images in checkpoints that hold it."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.towers.emu3_tokenizer import tokenizer_blocks

# Defaults of Emu3TextConfig (transformers 5.23).
_TEXT: dict[str, object] = {
    "vocab_size": 184_622, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "attention_dropout": 0.1,
}  # fmt: skip


def holds_tokenizer(c: Config) -> bool:
    """Whether the class is the one with images: by its name, else by the map of image tokens that it needs."""
    classes = c.items("architectures") or []
    return "Emu3ForConditionalGeneration" in classes or ("Emu3ForCausalLM" not in classes and c.has("vocabulary_map"))


def not_counted(c: Config) -> str:
    """What an estimate says that it leaves out."""
    return "activations of images" if holds_tokenizer(c) else ""


def blocks(c: Config) -> tuple[Block, ...]:
    """The image tokenizer, which runs only for batches with images, and the language model."""
    text = (c.table("text_config") or Config({}, c.model_id)).filled(_TEXT)
    whole = holds_tokenizer(c)
    tied = (c if whole else text).flag("tie_word_embeddings")
    text = Config({**text.values, "tie_word_embeddings": tied}, c.model_id)
    bias, dropout = text.flag("attention_bias"), text.number("attention_dropout")
    s = Design(qkv_bias=bias, output_bias=bias, mlp_bias=text.flag("mlp_bias"), dropouts=(0.0, dropout, dropout))
    language = decoder.model(text, s, [LayerKind()] * text.num_hidden_layers)
    if not whole:
        return language
    images = tokenizer_blocks(c.table("vq_config") or Config({}, c.model_id), "model.vqmodel")
    return (*images, *(renamed(block, inside("model.text_model")) for block in language))
