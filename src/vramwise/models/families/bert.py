"""BERT and its relatives: encoders with learned positions, segments and a head that predicts tokens.

A config whose `architectures` names a bare model (`BertModel`, ...) is described with its pooler and without a head,
as `AutoModel` builds it; rerankers (`BertForSequenceClassification`, RoBERTa's and XLM-R's) with their classifier,
whose scores have no loss of tokens; one that names a causal head, or sets `is_decoder`, with the causal loss; any other
as the masked language model. Without `is_decoder` every position attends to every other, whatever the head. BigBird is
described with full attention, which its class itself takes for decoders and for up to 704 tokens by default. Names and
defaults are those of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.bert_layer import layer
from vramwise.models.layers.encoder_design import ROBERTA, Design, Head
from vramwise.models.layers.encoder_embedding import after_embedding, embedding
from vramwise.models.layers.encoder_head import classifier, classifies, closing, language_model_head, pooler
from vramwise.models.layers.tasks import Task, task_of

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
    "roc_bert": Design("roc_bert", glyphs_and_sounds=True),
    "roformer": Design(
        "roformer", "made", "rotary", embedding_width="embedding_size", projection="embeddings_project",
        written_out=True, pooler=None, head=Head(width="embedding_size"),
    ),
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": replace(
        ROBERTA, embedding_norm="none", pre_norms=("attention.self_attn_layer_norm", "LayerNorm"),
        final_norm="encoder.LayerNorm", dropout_after_mlp=False,
    ),
    "xmod": replace(ROBERTA, language_adapters=True),
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


def task(c: Config) -> Task:
    """The head that the config asks for."""
    if classifies(c):
        return "none"
    return task_of(c, "causal-lm" if c.model_type == "bert-generation" else "masked-lm")


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, then the head, or the pooler of the bare model."""
    c, d = _design_of(config)
    if c.flag("add_cross_attention") and not c.flag("is_decoder"):
        raise c.error("add_cross_attention: only a decoder (is_decoder) has cross-attention")
    bare = task(c) == "none"
    root = f"{d.root}." if classifies(c) or not bare else ""
    layers = (layer(c, d, i, root) for i in range(c.num_hidden_layers))
    if classifies(c):
        return (embedding(c, d, root), *layers, classifier(c, root))
    last = language_model_head(c, d, root) if not bare else pooler(c, d.pooler) if d.pooler else None
    first = (embedding(c, d, root), *after_embedding(c, d, root))
    return (*first, *layers, *closing(c, d, root), *([last] if last else []))


def _design_of(c: Config) -> tuple[Config, Design]:
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
