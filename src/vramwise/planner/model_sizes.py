"""The sizes of a model that formulas of FLOPs take, counted from its blocks."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.flops import step_flops
from vramwise.utilization.conventions import Sizes


def sizes_of(model: Model, sequence: int) -> Sizes:
    """What the conventions need, counted from the blocks: active parameters, look-ups apart, L · H · Q of attention."""
    tied = {parameter.tied_to for parameter in model.all_parameters}
    lookups = [one for one in model.parameters if one.part == "embedding" and one.name not in tied]
    vocabulary = model.logit_width or model.config.size("vocab_size", default=1)
    layers = model.num_layers
    flops = step_flops(model, 1, sequence).attention_forward
    tables = [one for one in model.parameters if one.part == "embedding"]
    return Sizes(
        num_parameters=model.num_active_parameters,
        embedding_parameters=sum(one.numel for one in lookups),
        num_hidden_layers=layers,
        hidden_size=model.hidden_size,
        attention_width=round(flops / (4 * layers * sequence**2)) if flops else _plain_width(model),
        vocab_size=vocabulary,
        position_parameters=sum(one.numel for one in tables if "position" in one.name or ".wpe." in f".{one.name}"),
    )


def _plain_width(model: Model) -> int:
    """H · Q where attention runs as plain products, which the blocks' FLOPs do not tell apart; 0 without attention."""
    heads = model.config.size("num_attention_heads", "attention_heads", "n_head", "n_heads", default=0, least=0)
    if not heads:
        return 0
    return model.config.size("head_dim", default=model.hidden_size // heads) * heads
