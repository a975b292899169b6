"""What differs between BERT and its relatives: the switches of their encoders and heads."""

from __future__ import annotations

from typing import Literal

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
    glyphs_and_sounds: bool = False
    """A token's shape and its pronunciation are embedded beside it."""
    language_adapters: bool = False
    """Each layer ends in an adapter of the batch's language."""


ROBERTA = Design("roberta", "counted", "counted", head=ROBERTA_HEAD)
