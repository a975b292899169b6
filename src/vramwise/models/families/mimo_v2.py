"""MiMo V2.5: layers as in MiMo V2 Flash, each kind with heads of its own, laid out by lists of the checkpoint.

Its code comes with checkpoints; read in vLLM 0.33.0 `model_executor/models/mimo_v2.py`. One product for queries, keys
and values (`attention_projection_layout`) has the size of the three. Towers of images and sound are not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.mimo_v2_flash import Heads, parts
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import LayerKind


def heads_of(c: Config, kind: LayerKind) -> Heads:
    """Sliding layers have the sizes that begin with `swa_`; a score that sinks is theirs alone."""
    own = "swa_" if kind.window else ""
    head_dim = c.size(f"{own}head_dim", "head_dim")
    return Heads(
        c.size(f"{own}num_attention_heads", "num_attention_heads"),
        c.size(f"{own}num_key_value_heads", "num_key_value_heads"),
        head_dim,
        c.size(f"{own}v_head_dim", default=head_dim),
        sinks=kind.window is not None and c.flag("add_swa_attention_sink_bias"),
    )


def laid_out(c: Config) -> Config:
    """The checkpoint's lists of ones and zeros under the names of transformers, a layer's kind and its MLP's."""
    kinds, sparse = c.by_layer("hybrid_layer_pattern"), c.by_layer("moe_layer_freq")
    count, factor = c.num_hidden_layers, c.number("partial_rotary_factor", 1.0)
    own: dict[str, object] = {
        "layer_types": ["sliding_attention" if kind == 1 else "full_attention" for kind in kinds or [0] * count],
        "mlp_layer_types": ["sparse" if one else "dense" for one in sparse or [0] * count],
        "rope_parameters": {
            kind: {"partial_rotary_factor": factor} for kind in ("full_attention", "sliding_attention")
        },
    }
    return Config({**c.values, **own}, c.model_id)


def not_counted(c: Config) -> str:
    """What a model that also sees and hears has beside its language model."""
    towers = [f"the tower of {key}" for key in ("vision_config", "audio_config") if c.table(key)]
    return " and ".join(towers)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = laid_out(c)
    return mixture.model(c, *parts(c, None, heads_of))
