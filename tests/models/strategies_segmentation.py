"""Small configs of models that find, cut out and measure what is in images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
FLAG = st.booleans()
LABELS = st.integers(2, 9)


@st.composite
def sam(draw: st.DrawFn, model_type: str) -> Config:
    width = draw(st.sampled_from([16, 32]))
    prompts = {"hidden_size": width, "mask_input_channels": draw(st.sampled_from([8, 16])),
               "num_point_embeddings": draw(st.integers(4, 5)), "image_size": 64, "patch_size": 16}  # fmt: skip
    masks = {
        "hidden_size": width, "mlp_dim": draw(st.integers(5, 20)), "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": 2, "attention_downsample_rate": draw(st.sampled_from([1, 2])),
        "num_multimask_outputs": draw(st.integers(1, 3)), "iou_head_depth": draw(st.integers(1, 4)),
        "iou_head_hidden_dim": draw(st.integers(5, 20)),
    }  # fmt: skip
    vision = draw(hiera(width) if model_type == "sam2" else window_tower(width))
    parts = {"vision_config": vision, "prompt_encoder_config": prompts, "mask_decoder_config": masks}
    return {"model_type": model_type, **parts}


@st.composite
def window_tower(draw: st.DrawFn, out: int) -> Config:
    return {
        "hidden_size": draw(st.sampled_from([8, 16])), "output_channels": out, "num_pos_feats": out // 2,
        "num_hidden_layers": 2, "num_attention_heads": draw(st.sampled_from([1, 2])), "image_size": 64,
        "window_size": 2, "global_attn_indexes": draw(st.sampled_from([[], [1]])), "qkv_bias": draw(FLAG),
        "use_abs_pos": draw(FLAG), "use_rel_pos": draw(FLAG), "mlp_dim": draw(st.none() | st.integers(5, 20)),
        "mlp_ratio": draw(st.sampled_from([2.0, 2.5])), "num_channels": draw(st.sampled_from([1, 3])),
    }  # fmt: skip


@st.composite
def hiera(draw: st.DrawFn, out: int) -> Config:
    stages = draw(st.integers(2, 3))
    widths = draw(st.lists(st.sampled_from([8, 16]), min_size=stages, max_size=stages))
    backbone = {
        "model_type": "sam2_hiera_det_model", "hidden_size": widths[0], "embed_dim_per_stage": widths,
        "blocks_per_stage": draw(st.lists(st.integers(1, 2), min_size=stages, max_size=stages)),
        "num_attention_heads_per_stage": [1] * stages, "window_size_per_stage": [4, 2, 2][:stages],
        "global_attention_blocks": [1], "mlp_ratio": draw(st.sampled_from([2.0, 2.5])),
        "patch_kernel_size": draw(st.sampled_from([[7, 7], [5, 3]])), "num_channels": draw(st.sampled_from([1, 3])),
        "window_positional_embedding_background_size": draw(st.sampled_from([[7, 7], [3, 4]])),
    }  # fmt: skip
    return {
        "model_type": "sam2_vision_model", "backbone_config": backbone, "backbone_channel_list": widths[::-1],
        "fpn_hidden_size": out, "fpn_kernel_size": draw(st.sampled_from([1, 3])),
    }  # fmt: skip


@st.composite
def segformer(draw: st.DrawFn) -> Config:
    stages = draw(st.integers(1, 3))

    def each(*values: Any) -> Any:
        return draw(st.lists(st.sampled_from(values), min_size=stages, max_size=stages))

    config: Config = {
        "model_type": "segformer", "num_encoder_blocks": stages, "depths": each(1, 2), "sr_ratios": each(1, 2, 4),
        "hidden_sizes": each(8, 12), "patch_sizes": each(3, 5), "strides": [2] * stages, "mlp_ratios": each(2, 3),
        "num_attention_heads": each(1, 2), "decoder_hidden_size": draw(st.integers(5, 20)),
        "num_channels": draw(st.sampled_from([1, 3])), "num_labels": draw(LABELS),
    }  # fmt: skip
    names = ["SegformerModel", "SegformerForImageClassification", "SegformerForSemanticSegmentation"]
    return {**config, "architectures": [draw(st.sampled_from(names))]}


@st.composite
def depth_anything(draw: st.DrawFn) -> Config:
    kind, width = draw(st.sampled_from(["dinov2", "dinov2_with_registers"])), draw(st.sampled_from([8, 16]))
    backbone = {"model_type": kind, "hidden_size": width, "num_attention_heads": 2, "num_hidden_layers": 4,
                "image_size": 56, "out_indices": [1, 2, 3, 4], "use_swiglu_ffn": draw(FLAG)}  # fmt: skip
    return {
        "model_type": "depth_anything", "backbone_config": backbone, "reassemble_hidden_size": width,
        "reassemble_factors": draw(st.sampled_from([[4, 2, 1, 0.5], [2, 1, 0.5, 0.25]])),
        "neck_hidden_sizes": draw(st.lists(st.integers(4, 9), min_size=4, max_size=4)),
        "fusion_hidden_size": draw(st.integers(4, 9)), "head_hidden_size": draw(st.integers(4, 9)),
    }  # fmt: skip


@st.composite
def vitpose(draw: st.DrawFn) -> Config:
    backbone = {
        "model_type": "vitpose_backbone", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
        "image_size": [64, 48], "mlp_ratio": draw(st.integers(2, 4)), "num_experts": draw(st.integers(1, 3)),
        "part_features": draw(st.integers(1, 9)), "qkv_bias": draw(FLAG), "out_indices": [2],
    }  # fmt: skip
    return {"model_type": "vitpose", "backbone_config": backbone, "use_simple_decoder": draw(FLAG),
            "num_labels": draw(LABELS)}  # fmt: skip


@st.composite
def owl(draw: st.DrawFn, model_type: str) -> Config:
    def tower() -> Config:
        return {
            "hidden_size": draw(st.sampled_from([16, 32])), "intermediate_size": draw(st.integers(5, 20)),
            "num_hidden_layers": draw(st.integers(1, 2)), "num_attention_heads": 2,
        }  # fmt: skip

    text = {**tower(), "vocab_size": draw(st.integers(17, 60)), "max_position_embeddings": draw(st.integers(5, 9)),
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    vision = {**tower(), "image_size": 32, "patch_size": 8, "num_channels": draw(st.sampled_from([1, 3]))}
    name = {"owlvit": "OwlViT", "owlv2": "Owlv2"}[model_type]
    named = draw(st.sampled_from([f"{name}Model", f"{name}ForObjectDetection"]))
    return {"model_type": model_type, "text_config": text, "vision_config": vision, "architectures": [named],
            "projection_dim": draw(st.integers(5, 20))}  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "depth_anything": depth_anything,
    "owlv2": lambda: owl("owlv2"),
    "owlvit": lambda: owl("owlvit"),
    "sam": lambda: sam("sam"),
    "sam2": lambda: sam("sam2"),
    "segformer": segformer,
    "vitpose": vitpose,
}
