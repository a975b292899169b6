"""BERT and its relatives: encoders with learned positions, segments and a head that predicts tokens.

A config whose `architectures` names a bare model (`BertModel`, ...) is described with its pooler and without a head,
as `AutoModel` builds it; rerankers (`BertForSequenceClassification`, RoBERTa's and XLM-R's) with their classifier,
whose scores have no loss of tokens; one that names a causal head, or sets `is_decoder`, with the causal loss; any other
as the masked language model. Without `is_decoder` every position attends to every other, whatever the head. BigBird is
described with full attention, which its class itself takes for decoders and for up to 704 tokens by default.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.bert_layer import layer
from vramwise.models.layers.encoder_design import design_of
from vramwise.models.layers.encoder_embedding import after_embedding, embedding
from vramwise.models.layers.encoder_head import classifier, classifies, closing, language_model_head, pooler
from vramwise.models.layers.tasks import Task, task_of


def task(c: Config) -> Task:
    """The head that the config asks for."""
    if classifies(c):
        return "none"
    return task_of(c, "causal-lm" if c.model_type == "bert-generation" else "masked-lm")


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, then the head, or the pooler of the bare model."""
    c, d = design_of(config)
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
