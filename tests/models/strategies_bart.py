"""Small configs of BART's relatives, whole and as their decoders alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]

CLASSES = {
    "bart": "Bart", "bigbird_pegasus": "BigBirdPegasus", "blenderbot": "Blenderbot",
    "blenderbot-small": "BlenderbotSmall", "led": "LED", "m2m_100": "M2M100", "marian": "Marian",
    "mbart": "MBart", "mvp": "Mvp", "pegasus": "Pegasus",
    "plbart": "PLBart", "trocr": "TrOCR", "whisper": "Whisper",
}  # fmt: skip


@st.composite
def encoder_decoder(draw: st.DrawFn, model_type: str) -> Config:
    alone = model_type == "trocr" or (model_type not in ("led", "m2m_100") and draw(st.booleans()))
    vocabulary = draw(st.integers(17, 60))
    heads = st.sampled_from([1, 2, 4])
    config: Config = {
        "model_type": model_type,
        "architectures": [f"{CLASSES[model_type]}{'ForCausalLM' if alone else 'ForConditionalGeneration'}"],
        "vocab_size": vocabulary,
        "d_model": draw(st.sampled_from([16, 32])),
        "encoder_layers": draw(st.integers(1, 2)),
        "decoder_layers": draw(st.integers(1, 3)),
        "encoder_attention_heads": draw(heads),
        "decoder_attention_heads": draw(heads),
        "encoder_ffn_dim": draw(st.integers(5, 30)),
        "decoder_ffn_dim": draw(st.integers(5, 30)),
        "max_position_embeddings": 16,
        "activation_function": draw(st.sampled_from(["gelu", "relu", "gelu_new"])),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
        "activation_dropout": draw(st.sampled_from([0.0, 0.1])),
        "scale_embedding": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    if model_type == "marian":
        config["share_encoder_decoder_embeddings"] = draw(st.booleans())
        config["decoder_vocab_size"] = vocabulary
        if not config["share_encoder_decoder_embeddings"] and not alone:
            config["decoder_vocab_size"] = draw(st.integers(17, 60))
    if model_type == "led":
        config |= {"max_encoder_position_embeddings": 32, "max_decoder_position_embeddings": 16}
        own = [draw(st.sampled_from([4, 8])) for _ in range(config["encoder_layers"])]
        config["attention_window"] = draw(st.sampled_from([4, 6, own]))
    if model_type == "m2m_100":
        config |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
    if model_type == "bigbird_pegasus":
        config["use_bias"] = draw(st.booleans())
    if model_type == "trocr":
        config["is_decoder"] = draw(st.booleans())
        config["layernorm_embedding"] = draw(st.booleans())
        config["use_learned_position_embeddings"] = draw(st.booleans())
        config["cross_attention_hidden_size"] = draw(st.none() | st.just(24))
    if model_type == "whisper":
        config |= {"num_mel_bins": draw(st.integers(3, 9)), "max_source_positions": draw(st.integers(4, 12))}
        config["max_target_positions"] = 16
    return config


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    model_type: lambda model_type=model_type: encoder_decoder(model_type) for model_type in CLASSES
}
