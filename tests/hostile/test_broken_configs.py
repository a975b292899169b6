"""A valid config of every described type with one value broken: an answer, or one line; never anything else."""

from __future__ import annotations

import math
import re
import resource
import signal
from contextlib import contextmanager
from functools import cache

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from by_turns import has_turn, is_thorough
from vramwise import describe, estimate
from vramwise.errors import VramwiseError
from vramwise.models import supported_types
from vramwise.models.config import MOST_LAYERS
from vramwise.models.family_of_type import FAMILY_OF_TYPE
from vramwise.models.registry import _described
from vramwise.sources import resolve
from vramwise.sources.catalog import catalog

MOST_CPU_SECONDS = 20.0
MOST_MORE_BYTES = 2**30
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
LAYERS += ("num_encoder_layers", "num_decoder_layers")
THOROUGH = is_thorough()
TASKS = ("describe", "load", "generate", "serve", "train")
REMOVED = object()
BROKEN = (-1, 0, 1, 3, 10**9, 2**40, 2**40 + 1, 10**30, -(10**30), 1.5, math.nan, math.inf, "many", "", "64")
BROKEN += (None, True, [], [1], [None], {}, {"a": 1}, REMOVED)
# Keys that a family may read although the config of the catalog leaves them out.
OPTIONAL = (
    "head_dim", "num_key_value_heads", "sliding_window", "layer_types", "num_experts", "rope_scaling",
    "intermediate_size", "tie_word_embeddings", "hidden_act", "attention_bias", "q_lora_rank", "partial_rotary_factor",
    "text_config", "vision_config", "quantization_config", "torch_dtype", "use_sliding_window", "max_window_layers",
)  # fmt: skip

# What the class's own defaults lack for a model that runs.
_WIDE_HEADS = {"text_config": {"head_dim": 128}}
REQUIRED = {
    "esm": {"vocab_size": 33},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "dots_ocr": {
        "hidden_size": 1536,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 8960,
        "vocab_size": 151936,
        "max_position_embeddings": 131072,
    },
    "qwen3_omni_moe_thinker": _WIDE_HEADS,
    "qwen3_omni_moe": {
        "thinker_config": _WIDE_HEADS,
        "talker_config": {"text_config": {"shared_expert_intermediate_size": 768}},
    },
}

_INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 64}
_OCR = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "use_mla": False,
}  # fmt: skip
REQUIRED["mimo_v2"] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "num_key_value_heads": 1, "head_dim": 16, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "hybrid_layer_pattern": [0, 1], "moe_layer_freq": [0, 1], "sliding_window": 4,
    "swa_num_key_value_heads": 2, "max_position_embeddings": 128, "add_swa_attention_sink_bias": True,
}  # fmt: skip
REQUIRED |= {name: {"language_config": _OCR} for name in ("deepseek_ocr", "deepseekocr_2")}
REQUIRED["granite4_vision"] = {"deepstack_layer_map": [[-1, 0]], "downsample_rate": "4/8"}
REQUIRED |= {"qwen4_exp_text": _INDEXER, "qwen4_exp": {"text_config": _INDEXER}}


class Hung(BaseException):
    """No Exception, so that no handler of the code under test takes it for its own."""


@cache
def valid_config(model_type):
    """The smallest config of the type in the catalog, else the class's defaults, else that of a sibling's."""
    candidates = [entry.hyperparameters for entry in smallest().values() if entry.model_type == model_type]
    candidates.append(REQUIRED.get(model_type, {}))
    own = FAMILY_OF_TYPE[model_type]
    siblings = (entry for entry in smallest().values() if FAMILY_OF_TYPE.get(entry.model_type) == own)
    candidates += [entry.hyperparameters for entry in siblings]
    valid = ({**candidate, "model_type": model_type} for candidate in candidates)
    return next(config for config in valid if answered(config, "describe"))


@cache
def smallest():
    """The catalog's entry with the fewest layers of each type."""
    return {entry.model_type: entry for entry in sorted(catalog(), key=lambda e: -_layers(e.hyperparameters))}


def _layers(config):
    return next((config[key] for key in LAYERS if isinstance(config.get(key), int)), 0)


@contextmanager
def bounded():
    """Fail when the body takes more CPU time or more memory than any sane config could need."""
    _described.cache_clear()

    def hung(*_):
        raise Hung

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGPROF, hung)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_MORE_BYTES


def answered(config, task):
    """Whether there is an answer; otherwise one line says why."""
    try:
        if task == "describe":
            describe(config)
        else:
            estimate({"model": config, "task": task})
    except VramwiseError as error:
        line = str(error)
        assert line.strip()
        assert "\n" not in line
        assert len(line) < 600
        return False
    return True


@pytest.mark.parametrize("model_type", supported_types())
def test_one_broken_value(model_type):
    """A third of the types with three values in a normal run, the others with one."""
    whole = valid_config(model_type)
    keys = sorted((set(whole) | set(OPTIONAL)) - {"model_type"})

    @settings(
        max_examples=20 if THOROUGH else 3 if has_turn(model_type, 3) else 1, suppress_health_check=list(HealthCheck)
    )
    @given(key=st.sampled_from(keys), value=st.sampled_from(BROKEN), task=st.sampled_from(TASKS))
    def is_answered(key, value, task):
        config = {name: other for name, other in whole.items() if name != key}
        if value is not REMOVED:
            config[key] = value
        with bounded():
            answered(config, task)

    is_answered()


def with_layers(config, layers):
    """The config with every count of layers in it changed, in the tables within it too."""
    changed = {
        key: with_layers(value, layers) if isinstance(value, dict) else layers if key in LAYERS else value
        for key, value in config.items()
    }
    return changed


ALL_COUNTS = dict.fromkeys(LAYERS, 1)


@pytest.mark.parametrize("model_type", supported_types())
def test_a_model_of_a_billion_layers_is_refused_before_it_is_built(model_type):
    """Or answered as before, where a pattern of layers says how many there are."""
    whole = valid_config(model_type)
    huge = with_layers({**ALL_COUNTS, "text_config": ALL_COUNTS, **whole}, 10**9)
    with bounded():
        assert not answered(huge, "describe") or describe(huge).num_layers == describe(whole).num_layers


def test_the_number_of_layers_has_a_bound():
    config = valid_config("llama")
    assert answered({**config, "num_hidden_layers": 1000}, "describe")
    with pytest.raises(VramwiseError, match="num_hidden_layers: expected a whole number from 1 to 4,096, got 4097"):
        describe({**config, "num_hidden_layers": MOST_LAYERS + 1})


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("deberta-v2", "pos_att_type", -1),
        ("albert", "inner_group_num", 10**9),
        ("gemma3n_text", "altup_num_inputs", 2**40),
        ("segformer", "depths", [4096] * 4),
        ("convnext", "depths", [4096] * 4),
        ("sam2", "mask_decoder_config", {"num_hidden_layers": 4096}),
        ("vitpose", "backbone_config", {"num_experts": 4096}),
    ],
)
def test_a_value_that_only_one_type_reads_is_refused_by_its_name(model_type, key, value):
    config = valid_config(model_type)
    if isinstance(value, dict):  # in a table of the config
        table, (key, value) = key, next(iter(value.items()))
        config = {**config, table: {**config.get(table, {}), key: value}}
    else:
        config = {**config, key: value}
    with pytest.raises(VramwiseError, match=key), bounded():
        describe(config)


@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=3))
@example(value="llama\n")
def test_any_model_type(value):
    assert not answered({"model_type": value}, "describe")


@pytest.mark.parametrize(
    ("model", "table", "key", "value", "serve"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "quantization_config", "weight_block_size", [], {}),
        ("poolside/Laguna-XS.2-FP8", "rope_parameters", "sliding_attention", 3, {}),
        ("deepseek-ai/DeepSeek-V3", "rope_scaling", "original_max_position_embeddings", -1, {"engine": "tgi"}),
        ("deepseek-ai/DeepSeek-V3", "rope_scaling", "original_max_position_embeddings", -1, {"engine": "sglang"}),
    ],
)
def test_broken_values_inside_tables_are_refused_or_left_alone(model, table, key, value, serve):
    config = resolve(model).config
    broken = {**config, table: {**config[table], key: value}}
    scenario = {"model": broken, "gpu": "h100-sxm-80gb", "task": "serve" if serve else "load", "serve": serve}
    if not serve:
        with pytest.raises(VramwiseError, match=key):
            estimate(scenario)
    else:
        assert estimate(scenario).quantities["total_needed"].low > 0


_RATES = {"model_type": "xcodec", "acoustic_model_config": {"downsampling_ratios": [2**40] * 100}}


@pytest.mark.parametrize("config", [
    _RATES, *({"model_type": "mimi", "frame_rate": rate} for rate in (-1.0, 1e-320, 1e-90, 1e9)),
], ids=str)  # fmt: skip
def test_frames_of_a_codec_that_no_sound_has_are_one_line(config):
    with bounded():
        assert not answered(config, "describe")


_SPEECH = {"architectures": ["SpeechT5ForTextToSpeech"]}
_FACTORS = "reassemble_factors: expected a whole number up to 4,096, or less than 1 and more than 0, got"


@pytest.mark.parametrize(
    ("model_type", "values", "said"),
    [
        ("encodec", {"target_bandwidths": [10**98]}, "at most 1,024 codebooks of a codec, got more than 2^40"),
        ("speecht5", {"encoder_layers": -1}, "encoder_layers: expected a whole number from 1 to 4,096, got -1"),
        ("speecht5", _SPEECH | {"speech_decoder_prenet_layers": 10**6}, "speech_decoder_prenet_layers: expected"),
        ("evolla", {"resampler_depth": -1}, "resampler_depth: expected a whole number from 1 to 4,096, got -1"),
        ("sam", {"vision_config": 3}, "sam config: vision_config: expected a table, got 3"),
        ("depth_anything", {"reassemble_factors": [4, 2, 1, 0]}, f"{_FACTORS} 0"),
        ("depth_anything", {"reassemble_factors": [4, 2, 1, -0.5]}, f"{_FACTORS} -0.5"),
        ("depth_anything", {"reassemble_factors": [4, 2.5, 1, 0.5]}, f"{_FACTORS} 2.5"),
        ("depth_anything", {"reassemble_factors": [1e99, 2, 1, 0.5]}, f"{_FACTORS} 1e+99"),
        ("depth_anything", {"reassemble_factors": [4, 2, 1]}, "reassemble_factors names 3 of the 4 stages"),
        ("kimi_vl", {"vision_config": {"merge_kernel_size": [1]}}, "merge_kernel_size: expected two whole numbers"),
        ("kimi_k25", {"vision_config": {"merge_kernel_size": ["2", 2]}}, "merge_kernel_size: expected a whole number"),
        ("aria", {"projector_patch_to_query_dict": {}}, "projector_patch_to_query_dict: expected numbers of patches"),
        ("aria", {"projector_patch_to_query_dict": {"a": 1}}, "projector_patch_to_query_dict: expected numbers"),
        ("cohere2_moe", {"first_k_dense_replace": 10**9}, "first_k_dense_replace: expected a whole number from"),
        ("segformer", {"num_attention_heads": [64, 2, 5, 8]}, "num_attention_heads (64) is more than hidden_sizes"),
    ],
)  # fmt: skip
def test_what_the_class_refuses_is_said_with_the_config_s_own_key(model_type, values, said):
    with pytest.raises(VramwiseError, match=re.escape(said)), bounded():
        describe({**valid_config(model_type), **values})
