"""The names that checkpoints give to a module: transformers' own today, its earlier ones, and those of first releases.

Sources: transformers 5.23 conversion_mapping.py (what a class reads under another name), 4.57 (a text model under
`language_model.model`, experts one by one), files of DeepSeek, MiniMax and Mixtral (`block_sparse_moe`, `w1`, `ffn`).
"""

from __future__ import annotations

from functools import lru_cache

_BEGINNINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("model.language_model.", ("language_model.model.", "language_model.", "model.", "")),
    ("model.visual.", ("visual.",)),
    ("model.vision_tower.", ("vision_tower.", "vision_tower.vision_model.", "vision_model.", "model.vision_model.")),
    ("model.vision_model.", ("vision_model.",)),
    ("model.multi_modal_projector.", ("multi_modal_projector.", "mm_projector.")),
    ("model.audio_tower.", ("audio_tower.",)),
    ("model.", ("", "language_model.model.", "model.language_model.", "backbone.")),  # the last: Nemotron-H, Mamba 2
    ("transformer.", ("",)),
    ("bert.", ("",)), ("roberta.", ("",)), ("distilbert.", ("",)), ("vit.", ("",)), ("gpt_neox.", ("",)),
)  # fmt: skip
_PIECES = (
    (".mlp.", (".block_sparse_moe.", ".ffn.", ".feed_forward.", ".moe.")),
    (".block_sparse_moe.", (".mlp.",)),
    (".self_attn.", (".attn.", ".attention.")),
    (".indexer.", (".index_",)),
)
_OTHER_LAYERS = {
    "gate_up_proj": ("gate_proj", "w1"), "qkv_proj": ("q_proj",),
    "q_a_proj": ("wq_a", "fused_wqa_wkv"), "kv_proj": ("wkv", "fused_wqa_wkv"), "q_b_proj": ("wq_b",),
    "o_a_proj": ("wo_a",), "o_b_proj": ("wo_b",),
}  # fmt: skip
"""The last piece of a name in other files; of layers that a class keeps as one, the first stands for all."""
_EXPERTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3"), ("gate_up_proj",)),
    "gate_proj": (("gate_proj",), ("w1",)),
    "up_proj": (("up_proj",), ("w3",), ("linear_fc1",)),
    "down_proj": (("down_proj",), ("w2",), ("linear_fc2",)),
}
"""Which layers of one expert a tensor of all of them holds."""
HEADS = ("lm_head", "language_model.lm_head", "model.lm_head", "head", "output", "embed_out")


@lru_cache(maxsize=65_536)
def spellings(module: str) -> tuple[str, ...]:
    """A module's own name first, then the others."""
    if module in HEADS:
        return (module, *(name for name in HEADS if name != module))
    stack, _, own = module.rpartition(".")
    starts = [module, *(f"{stack}.{first}" for first in _OTHER_LAYERS.get(own, ()))]
    for beginning, others in _BEGINNINGS:
        if module.startswith(beginning):
            starts += [other + name.removeprefix(beginning) for name in starts for other in others]
            break
    inside = [
        name.replace(piece, other, 1)
        for name in starts
        for piece, others in _PIECES
        for other in others
        if piece in name
    ]
    return tuple(dict.fromkeys((*starts, *inside)))


@lru_cache(maxsize=65_536)
def single_experts(parameter: str) -> tuple[tuple[str, ...], ...]:
    """Names of the layers of the first expert that a tensor of all experts stands for, each way as a group.

    Empty for a tensor whose name is no stack of experts.
    """
    stack, _, own = parameter.removesuffix(".weight").rpartition(".")
    if own not in _EXPERTS or not stack:
        return ()
    return tuple(
        tuple(f"{spelled}.0.{name}" for name in names) for spelled in spellings(stack) for names in _EXPERTS[own]
    )
