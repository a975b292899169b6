"""Small configs of models that write text or codes beside images, sound and proteins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies_codecs import mimi

Config = dict[str, Any]
FLAG = st.booleans()


@st.composite
def llama(draw: st.DrawFn) -> Config:
    heads = draw(st.sampled_from([2, 4]))
    return {
        "hidden_size": heads * draw(st.sampled_from([4, 8])), "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([1, 2])), "intermediate_size": draw(st.integers(5, 20)),
        "num_hidden_layers": draw(st.integers(1, 3)), "attention_bias": draw(FLAG), "mlp_bias": draw(FLAG),
    }  # fmt: skip


@st.composite
def csm(draw: st.DrawFn) -> Config:
    outer, codes, rows = draw(llama()), draw(st.integers(2, 4)), draw(st.integers(17, 30))
    shared = {"num_codebooks": codes, "vocab_size": rows}
    ids = {"codebook_pad_token_id": 0, "codebook_eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0,
           "audio_token_id": 1, "audio_eos_token_id": 2}  # fmt: skip
    small = {**draw(llama()), **shared, "backbone_hidden_size": outer["hidden_size"], "max_position_embeddings": 9}
    widths = {"head_dim": draw(st.sampled_from([4, 8]))}
    return {
        "model_type": "csm", **outer, **shared, **ids, **widths, "text_vocab_size": draw(st.integers(17, 30)),
        "tie_codebooks_embeddings": True, "depth_decoder_config": {**small, **widths}, "codec_config": draw(mimi()),
    }  # fmt: skip


@st.composite
def esm(draw: st.DrawFn) -> Config:
    heads = draw(st.sampled_from([1, 2]))
    config: Config = {
        "model_type": "esm", "vocab_size": draw(st.integers(17, 40)), "hidden_size": heads * 8,
        "num_attention_heads": heads, "num_hidden_layers": draw(st.integers(1, 3)),
        "intermediate_size": draw(st.integers(5, 20)), "max_position_embeddings": draw(st.integers(15, 20)),
        "pad_token_id": 1, "mask_token_id": 2, "position_embedding_type": draw(st.sampled_from(["absolute", "rotary"])),
        "emb_layer_norm_before": draw(FLAG), "token_dropout": draw(FLAG), "tie_word_embeddings": draw(FLAG),
        "hidden_dropout_prob": draw(st.sampled_from([0.0, 0.1])),
        "attention_probs_dropout_prob": draw(st.sampled_from([0.0, 0.1])),
    }  # fmt: skip
    names = ["EsmForMaskedLM"] * 4 + ["EsmModel", "EsmForSequenceClassification"]
    return {**config, "architectures": [draw(st.sampled_from(names))], "num_labels": draw(st.integers(2, 5))}


@st.composite
def evolla(draw: st.DrawFn) -> Config:
    protein = {
        "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": draw(st.integers(1, 2)), "num_attention_heads": 2,
        "intermediate_size": draw(st.integers(5, 20)), "max_position_embeddings": 20,
        "position_embedding_type": draw(st.sampled_from(["absolute", "rotary"])),
        "emb_layer_norm_before": draw(FLAG),
    }  # fmt: skip
    text = draw(llama())
    return {
        "model_type": "evolla", **text, "protein_encoder_config": protein, "vocab_size": draw(st.integers(17, 40)),
        "aligner_ffn_mult": draw(st.integers(1, 3)), "aligner_enable_bias": draw(FLAG),
        "aligner_num_add_layers": draw(st.integers(1, 3)), "resampler_depth": draw(st.integers(1, 2)),
        "resampler_dim_head": 4, "resampler_heads": draw(st.integers(1, 2)), "bos_token_id": 0, "eos_token_id": 1,
        "resampler_num_latents": draw(st.integers(1, 4)), "resampler_ff_mult": draw(st.integers(1, 3)),
        "tie_word_embeddings": draw(FLAG),
    }  # fmt: skip


@st.composite
def florence2(draw: st.DrawFn) -> Config:
    stages = draw(st.integers(1, 3))

    def each(*values: Any) -> Any:
        return draw(st.lists(st.sampled_from(values), min_size=stages, max_size=stages))

    width, tied = draw(st.sampled_from([16, 32])), draw(FLAG)
    vision = {
        "model_type": "florence_vision", "embed_dim": each(8, 12), "depths": each(1, 2), "patch_size": each(3, 5),
        "patch_stride": [2] * stages, "patch_padding": [1] * stages, "patch_prenorm": each(True, False),
        "num_heads": [2] * stages, "num_groups": [2] * stages, "mlp_ratio": draw(st.sampled_from([2.0, 2.5])),
        "qkv_bias": draw(FLAG), "projection_dim": width, "max_temporal_embeddings": 5, "window_size": 2,
        "max_position_embeddings": draw(st.integers(5, 9)), "in_channels": draw(st.sampled_from([1, 3])),
    }  # fmt: skip
    text = {
        "model_type": "bart", "vocab_size": draw(st.integers(17, 40)), "d_model": width, "encoder_layers": 1,
        "decoder_layers": draw(st.integers(1, 2)), "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": draw(st.integers(5, 20)), "decoder_ffn_dim": draw(st.integers(5, 20)),
        "max_position_embeddings": 20, "scale_embedding": draw(FLAG), "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2, "tie_word_embeddings": tied,
    }  # fmt: skip
    return {"model_type": "florence2", "vision_config": vision, "text_config": text, "image_token_id": 3,
            "tie_word_embeddings": tied}  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "csm": csm,
    "esm": esm,
    "evolla": evolla,
    "florence2": florence2,
}
