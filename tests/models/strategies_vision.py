"""Small configs of models that read images or sound beside text."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_gemma4 import gemma4 as gemma4_text
from strategies_mixtures import STRATEGIES as MIXTURES
from strategies_short_convolutions import lfm2
from vision_tables import COUNT, FLAG, LISTED, WIDTH, Config, Strategy, any_text, frames, text, vision, whole

POOLED = vision("siglip_vision_model", vision_use_head=FLAG)
PIXTRAL = vision("pixtral")
SIGLIP2 = vision("siglip2_vision_model", vision_use_head=FLAG, num_patches=st.just(9))
ENCODER = st.one_of(vision("clip_vision_model"), POOLED, PIXTRAL)
PIXEL_SIDES = st.sampled_from([[8, 8], [16, 8]])
INTERNVL = vision(
    "internvl_vision", image_size=PIXEL_SIDES, patch_size=st.just([4, 4]), attention_bias=FLAG, use_qk_norm=FLAG,
    norm_type=st.sampled_from(["layer_norm", "rms_norm"]), use_mask_token=FLAG, use_mean_pooling=FLAG,
    use_absolute_position_embeddings=FLAG,
)  # fmt: skip
DEEP = {"deepstack_visual_indexes": st.sampled_from([[], [0]]), "num_position_embeddings": st.just(16)}
TIED = {"tie_word_embeddings": FLAG}
SLIDING = {"use_sliding_window": FLAG, "sliding_window": st.just(4), "max_window_layers": COUNT}
SPARSE = {
    "num_experts": st.just(4), "num_experts_per_tok": COUNT, "moe_intermediate_size": WIDTH,
    "decoder_sparse_step": COUNT, "mlp_only_layers": st.sampled_from([[], [0]]), "attention_bias": FLAG,
    "head_dim": st.just(8),
}  # fmt: skip

GLM_MOE = {
    "n_routed_experts": st.just(4), "num_experts_per_tok": COUNT, "moe_intermediate_size": WIDTH,
    "n_shared_experts": COUNT, "first_k_dense_replace": COUNT, "attention_bias": FLAG, "norm_topk_prob": FLAG,
    "head_dim": st.just(16),
}  # fmt: skip
PERCEIVER = {
    "hidden_size": st.just(8), "resampler_n_latents": COUNT, "resampler_depth": COUNT, "resampler_n_heads": st.just(2),
    "resampler_head_dim": WIDTH, "num_key_value_heads": COUNT,
}  # fmt: skip
ERNIE = {
    "moe_num_experts": st.just(4), "moe_k": COUNT, "moe_num_shared_experts": st.integers(0, 2), "use_bias": FLAG,
    "moe_intermediate_size": st.sampled_from([[8, 4], [24, 8]]), "num_hidden_layers": st.just(2),
    "mlp_layer_types": st.sampled_from([["dense", "sparse"], ["sparse", "sparse"]]),
    "rope_parameters": st.just({"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]}),
}  # fmt: skip
ARIA = {
    "intermediate_size": WIDTH, "attention_bias": FLAG, "mlp_bias": FLAG, "moe_num_experts": st.just(3),
    "moe_topk": COUNT,
}  # fmt: skip
GEMMA = {"head_dim": WIDTH, "attention_bias": FLAG}
GEMMA2 = {**GEMMA, "sliding_window": st.just(4), "final_logit_softcapping": st.none() | st.just(30.0)}
GOT_OCR2 = vision(
    "got_ocr2_vision", image_size=st.just(16), mlp_dim=st.integers(5, 20), output_channels=WIDTH, qkv_bias=FLAG,
    window_size=COUNT, global_attn_indexes=st.sampled_from([[], [1]]), use_rel_pos=FLAG, use_abs_pos=FLAG,
)  # fmt: skip
LLAMA4 = vision(
    "llama4_vision_model", image_size=st.just(16), projector_input_dim=st.just(24), projector_output_dim=st.just(24),
    vision_output_dim=WIDTH,
)  # fmt: skip
CHUNKED = {
    "intermediate_size_mlp": WIDTH, "num_local_experts": COUNT, "interleave_moe_layer_step": COUNT, "use_qk_norm": FLAG,
    "head_dim": WIDTH, "attention_bias": FLAG, "attention_chunk_size": st.just(4), "pad_token_id": st.just(0),
}  # fmt: skip


@st.composite
def audio(draw: st.DrawFn, model_type: str, **switches: Strategy) -> Config:
    """Whisper's encoder."""
    heads = draw(COUNT)
    config: Config = {
        "model_type": model_type,
        "d_model": heads * draw(WIDTH),
        "encoder_ffn_dim": draw(st.integers(5, 20)),
        "encoder_layers": draw(COUNT),
        "encoder_attention_heads": heads,
        "num_mel_bins": draw(st.integers(2, 5)),
        "max_source_positions": draw(st.sampled_from([8, 16])),
    }
    return config | {name: draw(strategy) for name, strategy in switches.items()}


@st.composite
def moss(draw: st.DrawFn) -> Config:
    sizes = draw(audio("moss_transcribe_diarize_audio", dropout=st.just(0.0)))
    names = {"d_model": "hidden_size", "encoder_ffn_dim": "intermediate_size", "encoder_layers": "num_hidden_layers"}
    names["encoder_attention_heads"] = "num_attention_heads"
    return {
        "model_type": "moss_transcribe_diarize",
        "text_config": draw(any_text()),
        "audio_config": {names.get(key, key): value for key, value in sizes.items()},
        "audio_merge_size": draw(COUNT),
        "projector_bias": draw(FLAG),
        "tie_word_embeddings": draw(FLAG),
    }


def minimax_m3() -> Strategy:
    return MIXTURES["minimax_m3_vl_text"]()


def qwen2_audio() -> Strategy:
    parts = st.tuples(any_text(), audio("qwen2_audio_encoder"))
    return parts.map(lambda pair: {"model_type": "qwen2_audio", "text_config": pair[0], "audio_config": pair[1]})


@st.composite
def thinker(draw: st.DrawFn) -> Config:
    return {
        "model_type": "qwen2_5_omni_thinker",
        "text_config": draw(text("qwen2_5_omni_text", **SLIDING)),
        "vision_config": draw(frames("qwen2_5_omni_vision_encoder")),
        "audio_config": draw(audio("qwen2_5_omni_audio_encoder", output_dim=WIDTH)),
        "tie_word_embeddings": draw(FLAG),
    }


@st.composite
def omni(draw: st.DrawFn) -> Config:
    """Speech of one layer and one block each, or none."""
    channels = draw(st.sampled_from([[4, 4, 12], [4, 8, 8, 12]]))
    encoder = {"enc_channels": channels, "enc_kernel_sizes": [5, 3, 3, 1][-len(channels) :], "enc_dilations": [1] * 4}
    encoder["enc_dilations"] = encoder["enc_dilations"][: len(channels)]
    dit = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": draw(WIDTH), "emb_dim": 4}
    vocoder = {"upsample_initial_channel": 16, "upsample_rates": [5, 3], "upsample_kernel_sizes": [11, 7]}
    return {
        "model_type": "qwen2_5_omni",
        "thinker_config": draw(thinker()),
        "talker_config": draw(text("qwen2_5_omni_talker", embedding_size=WIDTH, head_dim=WIDTH)),
        "token2wav_config": {
            "dit_config": {**dit, **encoder, "num_embeds": 9, "enc_dim": 4, "enc_emb_dim": 12, "mel_dim": 6},
            "bigvgan_config": {
                **vocoder,
                "mel_dim": 6,
                "resblock_kernel_sizes": draw(st.sampled_from([[3, 7], [3, 7, 11]])),
            },
        },
        "enable_audio_output": draw(FLAG),
    }


@st.composite
def thinker3(draw: st.DrawFn) -> Config:
    return {
        "model_type": "qwen3_omni_moe_thinker",
        "text_config": draw(text("qwen3_omni_moe_text", **SPARSE)),
        "vision_config": draw(frames("qwen3_omni_moe_vision_encoder", **DEEP)),
        "audio_config": draw(
            audio("qwen3_omni_moe_audio_encoder", output_dim=WIDTH, downsample_hidden_size=COUNT,
                  num_mel_bins=st.integers(2, 20))
        ),
        "tie_word_embeddings": draw(FLAG),
    }  # fmt: skip


@st.composite
def omni3(draw: st.DrawFn) -> Config:
    talker = text("qwen3_omni_moe_talker_text", **SPARSE, shared_expert_intermediate_size=WIDTH)
    predictor = text("qwen3_omni_moe_talker_code_predictor", head_dim=WIDTH, num_code_groups=st.integers(2, 3))
    sound = {
        "codebook_size": 3, "hidden_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1,
        "intermediate_size": 5, "num_hidden_layers": draw(COUNT), "num_quantizers": draw(COUNT),
        "attention_bias": draw(FLAG), "upsample_rates": draw(st.sampled_from([[2], [2, 3]])),
        "upsampling_ratios": draw(st.sampled_from([[2], [2, 3]])), "decoder_dim": 16,
    }  # fmt: skip
    talking = {"text_config": draw(talker), "code_predictor_config": draw(predictor), "spatial_merge_size": 2}
    return {
        "model_type": "qwen3_omni_moe",
        "thinker_config": draw(thinker3()),
        "talker_config": {**talking, "thinker_hidden_size": draw(WIDTH)},
        "code2wav_config": sound,
        "enable_audio_output": draw(FLAG),
    }


MLLAMA = {
    "attention_heads": COUNT, "num_attention_heads": st.just(1), "num_global_layers": COUNT, "vision_output_dim": WIDTH,
    "max_num_tiles": COUNT, "supported_aspect_ratios": st.sampled_from([[[1, 1]], [[1, 1], [1, 2]]]),
    "intermediate_layers_indices": st.just([0]), "hidden_size": WIDTH,
}  # fmt: skip


def mllama() -> Strategy:
    texts = text(
        "mllama_text_model", cross_attention_layers=st.sampled_from([[], [0], [1]]), pad_token_id=st.just(0), **TIED
    )
    return whole("mllama", texts, vision("mllama_vision_model", **MLLAMA))


@st.composite
def gemma4(draw: st.DrawFn) -> Config:
    """Either tower, both or none."""
    vision_config = draw(vision("gemma4_vision", num_key_value_heads=st.just(1), head_dim=WIDTH))
    heads = draw(COUNT)
    audio_config = {
        "model_type": "gemma4_audio",
        "hidden_size": heads * draw(WIDTH),
        "num_hidden_layers": draw(COUNT),
        "num_attention_heads": heads,
        "subsampling_conv_channels": draw(st.sampled_from([[8, 4], [16, 8]])),
        "conv_kernel_size": draw(st.sampled_from([3, 5])),
        "output_proj_dims": draw(WIDTH),
    }
    return {
        "model_type": "gemma4",
        "text_config": draw(gemma4_text("gemma4_text")),
        "vision_config": draw(st.none() | st.just({**vision_config, "position_embedding_size": 16})),
        "audio_config": draw(st.none() | st.just(audio_config)),
        "tie_word_embeddings": draw(FLAG),
    }


@st.composite
def phi4_multimodal(draw: st.DrawFn) -> Config:
    heads = draw(COUNT)
    audio_config = {
        "hidden_size": heads * draw(WIDTH),
        "intermediate_size": draw(st.integers(3, 9)),
        "num_blocks": draw(COUNT),
        "num_attention_heads": heads,
        "input_size": draw(st.integers(9, 20)),
        "kernel_size": draw(st.sampled_from([1, 3])),
        "time_reduction": draw(st.sampled_from([2, 4, 8])),
        "bias_max_distance": draw(st.integers(2, 9)),
        "bias_symmetric": draw(FLAG),
        "nemo_conv_channels": draw(WIDTH),
    }
    audio_config["ext_pw_out_channel"] = audio_config["depthwise_separable_out_channel"] = audio_config["hidden_size"]
    sizes = draw(text("phi4_multimodal", resid_pdrop=st.sampled_from([0.0, 0.1]), pad_token_id=st.just(0), **TIED))
    images = draw(vision("phi4_multimodal_vision", image_size=st.just(16), patch_size=st.just(4)))
    return {**sizes, "vision_config": images, "audio_config": audio_config}


def fuyu() -> Strategy:
    texts = text("persimmon", num_key_value_heads=st.none(), qk_layernorm=FLAG)
    sizes = {"patch_size": st.integers(2, 5), "num_channels": COUNT, **TIED}
    return st.fixed_dictionaries({"model_type": st.just("fuyu"), "text_config": texts, **sizes})


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "aria": lambda: whole(
        "aria", text("aria_text", **ARIA),
        vision("idefics3_vision"), projector_patch_to_query_dict=st.sampled_from([{"4": 2, "16": 3}]), **TIED
    ),
    "aya_vision": lambda: whole("aya_vision", any_text(), ENCODER, downsample_factor=COUNT, **TIED),
    "deepseek_vl": lambda: whole("deepseek_vl", any_text(), POOLED, **TIED),
    "ernie4_5_vl_moe": lambda: whole(
        "ernie4_5_vl_moe", text("ernie4_5_vl_moe_text", **ERNIE), frames("ernie4_5_vl_moe_vision"), **TIED
    ),
    "fuyu": fuyu,
    "gemma4": gemma4,
    **{
        kind: lambda kind=kind: whole(
            kind, text("glm4v_text", **TIED), frames("glm4v_vision", image_size=st.just(16), attention_bias=FLAG),
            **TIED
        )
        for kind in ("glm46v", "glm4v")
    },
    "glm4v_moe": lambda: whole(
        "glm4v_moe", text("glm4v_moe_text", **GLM_MOE, **TIED),
        frames("glm4v_moe_vision", image_size=st.just(16), attention_bias=FLAG), **TIED
    ),
    "got_ocr2": lambda: whole("got_ocr2", any_text(), GOT_OCR2, **TIED),
    "idefics2": lambda: whole(
        "idefics2", any_text(), vision("idefics2_vision"), perceiver_config=st.fixed_dictionaries(PERCEIVER), **TIED
    ),
    "idefics3": lambda: whole(
        "idefics3", any_text(), vision("idefics3_vision"), scale_factor=COUNT, pad_token_id=st.just(0), **TIED
    ),
    "internvl": lambda: whole("internvl", any_text(), INTERNVL, downsample_ratio=st.sampled_from([0.5, 1.0]), **TIED),
    "llama4": lambda: whole("llama4", text("llama4_text", **CHUNKED, **TIED), LLAMA4, **TIED),
    "llava": lambda: whole(
        "llava", any_text(), ENCODER, vision_feature_layer=LISTED, multimodal_projector_bias=FLAG, **TIED
    ),
    "llava_next": lambda: whole(
        "llava_next", any_text(), ENCODER, vision_feature_layer=LISTED, multimodal_projector_bias=FLAG, **TIED
    ),
    "llava_next_video": lambda: whole(
        "llava_next_video", any_text(), ENCODER, vision_feature_layer=LISTED, multimodal_projector_bias=FLAG, **TIED
    ),
    "video_llava": lambda: whole(
        "video_llava", any_text(), ENCODER, vision_feature_layer=LISTED, multimodal_projector_bias=FLAG, **TIED
    ),
    "vipllava": lambda: whole("vipllava", any_text(), ENCODER, vision_feature_layer=LISTED, **TIED),
    "llava_onevision": lambda: whole(
        "llava_onevision", any_text(), ENCODER, vision_feature_layer=LISTED, multimodal_projector_bias=FLAG, **TIED
    ),
    "lfm2_vl": lambda: whole(
        "lfm2_vl", lfm2("lfm2", block_auto_adjust_ff_dim=st.just(False)), SIGLIP2, downsample_factor=COUNT,
        projector_hidden_size=WIDTH, projector_bias=FLAG, projector_use_layernorm=FLAG, **TIED
    ),
    "minimax_m3_vl": lambda: whole(
        "minimax_m3_vl", minimax_m3(),
        vision("minimax_m3_vl_vision", temporal_patch_size=COUNT, spatial_merge_size=COUNT, hidden_size=st.just(32),
               num_attention_heads=st.just(1)), projector_hidden_size=WIDTH,
        **TIED
    ),
    "mistral3": lambda: whole(
        "mistral3", any_text(), PIXTRAL, vision_feature_layer=LISTED, multimodal_projector_bias=FLAG,
        spatial_merge_size=COUNT, **TIED
    ),
    "mllama": mllama,
    "moss_transcribe_diarize": moss,
    "paligemma": lambda: whole(
        "paligemma", st.one_of(text("gemma", **GEMMA), text("gemma2", **GEMMA2)), POOLED, projection_dim=WIDTH, **TIED
    ),
    "phi4_multimodal": phi4_multimodal,
    "qwen2_5_omni": omni,
    "qwen2_5_omni_thinker": thinker,
    "qwen2_audio": qwen2_audio,
    "qwen2_5_vl": lambda: whole(
        "qwen2_5_vl", text("qwen2_5_vl_text", **SLIDING, **TIED), frames("qwen2_5_vl_vision"), **TIED
    ),
    "qwen2_vl": lambda: whole(
        "qwen2_vl", text("qwen2_vl_text", **SLIDING, **TIED), frames("qwen2_vl_vision", embed_dim=WIDTH), **TIED
    ),
    "qwen3_omni_moe": omni3,
    "qwen3_omni_moe_thinker": thinker3,
    "qwen3_vl": lambda: whole(
        "qwen3_vl", text("qwen3_vl_text", attention_bias=FLAG, head_dim=st.just(8)),
        frames("qwen3_vl_vision", **DEEP), **TIED
    ),
    "qwen3_vl_moe": lambda: whole(
        "qwen3_vl_moe", text("qwen3_vl_moe_text", **SPARSE), frames("qwen3_vl_moe_vision", **DEEP), **TIED
    ),
    "smolvlm": lambda: whole(
        "smolvlm", any_text(), vision("smolvlm_vision"), scale_factor=COUNT, pad_token_id=st.just(0), **TIED
    ),
}  # fmt: skip
