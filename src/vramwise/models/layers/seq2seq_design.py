"""What differs between BART and its relatives: the switches of their encoders and decoders."""

from __future__ import annotations

from typing import Literal

from vramwise.records import record


@record
class Design:
    """Switches of an encoder-decoder of BART's shape.

    `positions`: learned rows (with two that no position uses, or none), or a fixed table among the parameters.
    `embedding_norm`: of the sum of tokens and positions, or in the decoder of the tokens alone. `attention`: heads
    folded into the batch, or queries scaled before them and every piece copied; `masks_one_token`: a decoder's sequence
    of one token is masked too.
    """

    positions: Literal["offset", "learned", "fixed"] = "offset"
    pre_norm: bool = False
    embedding_norm: Literal["sum", "tokens", "none"] = "sum"
    final_norm: str | None = None
    attention: Literal["plain", "folded", "copied"] = "plain"
    attention_bias: bool = True
    masks_one_token: bool = True
    encoder_attention: tuple[str, str] = ("self_attn.{}_proj", "self_attn.out_proj")
    head: str = "lm_head"
    logits_bias: bool = True
    hears: bool = False
    """The encoder reads sound."""
    fixed_table: Literal["parameter", "buffer", "neither"] = "parameter"
    """What a table of fixed positions is to its module."""
    decoder_rows: bool = False
    """A row of position ids is made for each sequence in the decoder too."""
    tied_alone: bool = True
    """The decoder alone ties its head to its embedding where the config ties any."""
    encoder_clamps: bool = True
    """The encoder's layers, where norms come before, keep what they hand on within fp16."""
    encoder_drops_inside: bool = True
    """The encoder's feed-forward has dropout between its products."""
