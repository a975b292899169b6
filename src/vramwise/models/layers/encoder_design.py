"""What differs between BERT and its relatives, by model type; names and defaults as in transformers 5.23."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from vramwise.models.config import Config
from vramwise.records import record


@record
class Head:
    """The language-modelling head: a dense layer, an activation, a norm, the projection to the vocabulary."""

    name: str = "cls.predictions"
    dense: str | None = "transform.dense"
    norm: str = "transform.LayerNorm"
    decoder: str = "decoder"
    width: str = "hidden_size"
    follows_hidden_act: bool = True
    own_bias: bool = False
    """The projection's bias has one name only, and is tied to nothing."""
    ties: bool = True


BERT_HEAD = Head()
ROBERTA_HEAD = Head("lm_head", "dense", "layer_norm", follows_hidden_act=False)


@record
class Design:
    """Switches of an encoder of BERT's shape.

    `segments` and `positions` say where their indices come from (`lowerings.inputs`). `pre_norms` are the norms before
    attention and feed-forward, None where norms come after. `written_out`: the class computes attention itself.
    `pooler` is that of the bare model.
    """

    root: str = "bert"
    segments: Literal["gathered", "counted", "made", "narrowed", "none"] = "gathered"
    positions: Literal["buffer", "counted", "rotary"] = "buffer"
    adds_in_place: bool = False
    embedding_norm: Literal["before dropout", "after dropout", "none"] = "before dropout"
    embedding_width: str = "hidden_size"
    projection: str | None = None
    always_projects: bool = False
    pre_norms: tuple[str, str] | None = None
    final_norm: str | None = None
    dropout_after_mlp: bool = True
    written_out: bool = False
    head: Head = BERT_HEAD
    pooler: str | None = "pooler.dense"
    keeps_pooler: bool = False


ROBERTA = Design("roberta", "counted", "counted", head=ROBERTA_HEAD)
_DESIGNS: dict[str, Design] = {
    "bert": Design(),
    "bert-generation": Design(segments="none", head=Head("lm_head", None, ""), pooler=None),
    "big_bird": Design(
        segments="narrowed", adds_in_place=True, embedding_norm="after dropout", written_out=True, pooler="pooler",
        keeps_pooler=True,
    ),
    "camembert": ROBERTA,
    "data2vec-text": replace(ROBERTA, root="data2vec_text"),
    "electra": Design(
        "electra", embedding_width="embedding_size", projection="embeddings_project", pooler=None,
        head=Head("", "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head",
                  "embedding_size", follows_hidden_act=False, own_bias=True),
    ),
    "ernie": Design("ernie"),
    "megatron-bert": Design(
        segments="made", adds_in_place=True, embedding_norm="none", pre_norms=("attention.ln", "ln"),
        final_norm="encoder.ln", written_out=True,
    ),
    "rembert": Design(
        "rembert", "made", adds_in_place=True, embedding_width="input_embedding_size", written_out=True,
        projection="encoder.embedding_hidden_mapping_in", always_projects=True,
        head=Head("cls.predictions", "dense", "LayerNorm", width="output_embedding_size", own_bias=True, ties=False),
    ),
    "roberta": ROBERTA,
    "roberta-prelayernorm": replace(
        ROBERTA, root="roberta_prelayernorm", pre_norms=("attention.LayerNorm", "intermediate.LayerNorm"),
        final_norm="LayerNorm",
    ),
    "roc_bert": Design("roc_bert"),
    "roformer": Design(
        "roformer", "made", "rotary", embedding_width="embedding_size", projection="embeddings_project",
        written_out=True, pooler=None, head=Head(width="embedding_size"),
    ),
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": replace(
        ROBERTA, embedding_norm="none", pre_norms=("attention.self_attn_layer_norm", "LayerNorm"),
        final_norm="encoder.LayerNorm", dropout_after_mlp=False,
    ),
    "xmod": ROBERTA,
}  # fmt: skip

_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
          "max_position_embeddings", "type_vocab_size")  # fmt: skip
_DEFAULT_SIZES = {
    "bert-generation": (50358, 1024, 24, 16, 4096, 512, 0),
    "big_bird": (50358, 768, 12, 12, 3072, 4096, 2),
    "electra": (30522, 256, 12, 4, 1024, 512, 2),
    "megatron-bert": (29056, 1024, 24, 16, 4096, 512, 2),
    "rembert": (250300, 1152, 32, 18, 4608, 512, 2),
    "roberta": (50265, 768, 12, 12, 3072, 512, 2),
    "roberta-prelayernorm": (50265, 768, 12, 12, 3072, 512, 2),
    "roformer": (50000, 768, 12, 12, 3072, 1536, 2),
    "xlm-roberta-xl": (250880, 2560, 36, 32, 10240, 514, 1),
}
_BERT_BASE = (30522, 768, 12, 12, 3072, 512, 2)
_OTHER_DEFAULTS: dict[str, dict[str, object]] = {
    "big_bird": {"hidden_act": "gelu_new"},
    "electra": {"embedding_size": 128},
    "rembert": {"input_embedding_size": 256, "output_embedding_size": 1664, "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0, "tie_word_embeddings": False},
}  # fmt: skip


def design_of(c: Config) -> tuple[Config, Design]:
    """The config with its class's defaults, and the switches of its model type."""
    model_type = c.model_type
    design = _DESIGNS[model_type]
    sizes = dict(zip(_SIZES, _DEFAULT_SIZES.get(model_type, _BERT_BASE), strict=True))
    c = c.filled({**sizes, **_OTHER_DEFAULTS.get(model_type, {})})
    if model_type == "xmod" and c.flag("pre_norm"):
        design = replace(
            design, pre_norms=("attention.output.LayerNorm", "output.LayerNorm"), final_norm="encoder.LayerNorm"
        )
    return c, design
