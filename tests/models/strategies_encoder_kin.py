"""Small configs of BERT's relatives, as masked and as causal language models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]

CLASSES = {
    "big_bird": "BigBird", "camembert": "Camembert", "data2vec-text": "Data2VecText", "electra": "Electra",
    "ernie": "Ernie", "megatron-bert": "MegatronBert", "rembert": "RemBert",
    "roberta-prelayernorm": "RobertaPreLayerNorm", "roc_bert": "RoCBert", "roformer": "RoFormer",
    "xlm-roberta": "XLMRoberta", "xlm-roberta-xl": "XLMRobertaXL", "xmod": "Xmod",
}  # fmt: skip
OWN_SWITCHES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "big_bird": {"use_bias": st.booleans(), "rescale_embeddings": st.booleans()},
    "electra": {"embedding_size": st.sampled_from([8, 16])},
    "ernie": {"use_task_id": st.booleans(), "task_type_vocab_size": st.integers(1, 4)},
    "rembert": {"input_embedding_size": st.sampled_from([8, 16]), "output_embedding_size": st.sampled_from([8, 24])},
    "roc_bert": {
        "concat_input": st.booleans(), "enable_shape": st.booleans(), "enable_pronunciation": st.booleans(),
        "shape_embed_dim": st.integers(1, 9), "pronunciation_embed_dim": st.integers(1, 9),
        "shape_vocab_size": st.integers(3, 9), "pronunciation_vocab_size": st.integers(3, 9),
    },
    "roformer": {"embedding_size": st.none() | st.sampled_from([8, 16]), "rotary_value": st.booleans()},
    "xmod": {
        "pre_norm": st.booleans(), "adapter_layer_norm": st.booleans(), "adapter_reuse_layer_norm": st.booleans(),
        "ln_before_adapter": st.booleans(), "adapter_reduction_factor": st.sampled_from([2, 3]),
        "languages": st.sampled_from([["en_XX"], ["de_DE", "en_XX"]]), "default_language": st.just("en_XX"),
    },
}  # fmt: skip


@st.composite
def encoder(draw: st.DrawFn, model_type: str) -> Config:
    decodes = draw(st.booleans())
    config: Config = {
        "model_type": model_type,
        "hidden_size": draw(st.sampled_from([16, 32])),
        "intermediate_size": draw(st.integers(5, 40)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": draw(st.sampled_from([1, 2, 4])),
        "vocab_size": draw(st.integers(17, 60)),
        "max_position_embeddings": draw(st.integers(16, 40)),
        "type_vocab_size": draw(st.integers(1, 3)),
        "hidden_act": draw(st.sampled_from(["gelu", "relu", "gelu_new"])),
        "tie_word_embeddings": draw(st.booleans()),
        "is_decoder": decodes,
        "add_cross_attention": decodes and draw(st.booleans()),
    }
    if model_type in CLASSES:
        config["architectures"] = [f"{CLASSES[model_type]}For{draw(st.sampled_from(['MaskedLM', 'CausalLM']))}"]
    config.update({name: draw(switch) for name, switch in OWN_SWITCHES.get(model_type, {}).items()})
    return config


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    model_type: lambda model_type=model_type: encoder(model_type) for model_type in ("bert-generation", *CLASSES)
}
