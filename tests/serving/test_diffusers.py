"""Pipelines of Diffusers: moments, offload, quantized denoisers, tiles, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramwise.errors import ScenarioError, SourceError
from vramwise.estimation import estimate
from vramwise.models.diffusion import registry, unet
from vramwise.planner import suggestions
from vramwise.scenario import Scenario
from vramwise.sources.pipelines import pipeline_names

FLUX = "black-forest-labs/FLUX.1-dev"


def asked(model: str = FLUX, **settings: object):
    return estimate(model, task="generate", **settings)


def phase(result, name: str):
    return next(one for one in result.phases if one.name == name)


def expected(result, name: str) -> int:
    return int(result.quantities[name].expected)


@pytest.mark.parametrize("name", pipeline_names())
def test_every_built_in_pipeline_is_answered(name):
    result = asked(name)
    assert [one.name for one in result.phases] == ["load", "text encoder", "denoise step", "VAE decode"]
    assert result.quantities["weights"].low == result.quantities["weights"].high
    assert expected(result, "peak_allocated") > expected(result, "weights")
    json.dumps(result.to_dict())


def test_the_sizes_are_the_pipelines_own_and_others_change_them():
    own, small = asked(), asked(image_size="512x512")
    assert own.scenario["generate"]["image_size"] == "1024x1024"
    assert phase(small, "denoise step").bytes < phase(own, "denoise step").bytes
    activations = [phase(one, "VAE decode").components.find("activations").bytes for one in (small, own)]
    assert activations[1] == 4 * activations[0]


def test_offload_leaves_one_component_then_one_layer():
    plain, model, layer, ahead = (asked(offload=name) for name in ("none", "model", "sequential", "group"))
    assert phase(plain, "denoise step").components.find("weights").bytes == expected(plain, "weights")
    only = phase(model, "denoise step").components.find("weights")
    assert [one.name for one in only.children] == ["transformer"]
    assert phase(layer, "denoise step").components.find("weights") is None
    needs = [expected(one, "total_needed") for one in (plain, model, ahead, layer)]
    assert needs == sorted(needs, reverse=True)
    assert expected(layer, "host_memory") == expected(plain, "weights")


@pytest.mark.parametrize(("model", "offload"), [("sdxl", "none"), ("sdxl", "group"), ("stable-diffusion-v1-5", "none")])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_unets_repeated_layers_are_walked_once_and_hold_what_all_do(monkeypatch, model, offload, batch):
    settings = {"batch_size": batch, "offload": offload, "image_size": "512x768"}
    short = asked(model, **settings)
    monkeypatch.setattr(unet, "_WALKED", 99)
    registry._component.cache_clear()
    whole = asked(model, **settings)
    registry._component.cache_clear()
    assert phase(short, "denoise step") == phase(whole, "denoise step")


@pytest.mark.parametrize(
    ("model", "gpu", "settings"),
    [("sdxl", "rtx-4090", {}), ("sdxl", "rtx-4090", {"vae_slicing": True}), (FLUX, "l40s", {}), ("sdxl", "t4", {})],
)
def test_the_largest_batch_fits_at_every_moment_and_the_next_does_not(model, gpu, settings):
    result = asked(model, gpu=gpu, **settings)
    most, usable = expected(result, "max_batch"), result.capacity.usable_bytes
    peaks = [
        max(one.bytes for one in asked(model, gpu=gpu, batch_size=many, **settings).phases) for many in (most, most + 1)
    ]
    assert peaks[0] <= usable < peaks[1]


def test_a_plan_of_a_pipeline_asks_each_call_once(monkeypatch):
    registry._component.cache_clear()
    calls = []
    walk = registry.live_set
    monkeypatch.setattr(registry, "live_set", lambda *given, **more: calls.append(given[1:]) or walk(*given, **more))
    asked("sdxl", gpu="rtx-4090")
    first = len(calls)
    asked("sdxl", gpu="rtx-4090", vae_tiling=True)
    asked("sdxl", gpu="rtx-4090", vae_slicing=True)
    assert sum("sample" in str(one) for one in calls) <= 6  # of the denoiser, in all three
    assert len(calls) < 2 * first


def test_guidance_doubles_the_denoisers_batch_where_the_pipeline_joins_prompts():
    guided, plain = (asked("sdxl", guidance_scale=scale) for scale in (5.0, 1.0))
    live = [phase(one, "denoise step").components.find("activations").bytes for one in (guided, plain)]
    assert live[0] == pytest.approx(2 * live[1], rel=0.01)
    distilled = [phase(asked(guidance_scale=scale), "denoise step").bytes for scale in (5.0, 1.0)]
    assert distilled[0] == distilled[1]


def test_a_quantized_denoiser_takes_its_bits_and_scales_and_unpacks_a_layer():
    plain, nf4 = asked(f"{FLUX}:transformer"), asked(f"{FLUX}:transformer", quantization="nf4")
    linear = phase(nf4, "load").components.find("weights/transformer/bitsandbytes-nf4 tensors").bytes
    assert linear == pytest.approx(11.9e9 * (0.5 + 4 / 64), rel=0.01)
    assert expected(nf4, "activation_peak") > expected(plain, "activation_peak")
    eight = asked(f"{FLUX}:transformer", quantization="int8")
    assert expected(nf4, "weights") < expected(eight, "weights") < expected(plain, "weights")


def test_sdxl_decodes_in_fp32_when_loaded_in_fp16():
    half, wide = (asked("sdxl", dtype=dtype) for dtype in ("fp16", "bf16"))
    live = [phase(one, "VAE decode").components.find("activations").bytes for one in (half, wide)]
    assert live[0] == 2 * live[1]
    assert any("force_upcast" in note for note in half.notes)


@pytest.mark.parametrize(("model", "kind"), [("sd1.5", "AutoencoderKL"), ("wan2.1-t2v-1.3b", "AutoencoderKLWan")])
def test_a_tiled_decoder_holds_what_the_class_does(model, kind):
    """The rows of the real classes with `enable_tiling`; weights and inputs left out."""
    rows = (Path(__file__).parents[1] / "golden" / "diffusers_components.jsonl").read_text("utf-8").splitlines()
    row = next(one for one in map(json.loads, rows) if one["class"] == kind and "switches" in one)
    *_, rows_, columns = row["inputs"]["z"]
    frames = 4 * row["inputs"]["z"][2] - 3 if len(row["inputs"]["z"]) == 5 else 1
    result = asked(model, image_size=f"{8 * columns}x{8 * rows_}", vae_tiling=True, dtype="fp16", num_frames=frames)
    live = phase(result, "VAE decode").components.find("activations").bytes
    assert live == pytest.approx(row["live_bytes"], rel=0.005)


def test_slices_decode_one_image_at_a_time():
    sliced, whole = (asked("sd1.5", batch_size=4, vae_slicing=one) for one in (True, False))
    assert phase(sliced, "VAE decode").bytes < phase(whole, "VAE decode").bytes


def test_the_last_encoder_stays_while_others_read_the_empty_prompt():
    """accelerate's hooks send away the model before the one that comes, which is not the last encoder."""
    once, twice = (asked("sd3.5-medium", offload="model", guidance_scale=scale) for scale in (1.0, 7.0))
    held = [phase(one, "text encoder").components.find("weights").children for one in (once, twice)]
    assert [[node.name for node in one] for one in held] == [["text_encoder_3"], ["text_encoder_2", "text_encoder_3"]]
    zeros = phase(asked("sdxl", offload="model"), "text encoder").components.find("weights")
    assert [node.name for node in zeros.children] == ["text_encoder_2"]


def test_t5_keeps_what_overflows_in_fp32_where_fp16_is_asked_for():
    """transformers 5.23 modeling_t5.py `_keep_in_fp32_modules`: 24 `wo` of 10,240 x 4,096, two bytes more each."""
    half, wide = (asked(dtype=dtype) for dtype in ("fp16", "bf16"))
    assert expected(half, "weights") - expected(wide, "weights") == 2 * 24 * 10_240 * 4_096
    umt5 = [expected(asked("wan2.1-t2v-1.3b", dtype=dtype), "weights") for dtype in ("fp16", "bf16")]
    assert umt5[0] - umt5[1] == 2 * 24 * 10_240 * 4_096


def test_a_decoder_of_clips_holds_the_frames_so_far_while_it_runs():
    """autoencoder_kl_wan.py `_decode`: `out` is joined behind every call, beside which the last result is named."""
    frame = 3 * 480 * 832 * 4
    live = [
        phase(asked("wan2.1-t2v-1.3b", num_frames=frames), "VAE decode").components.find("activations").bytes
        for frames in (41, 81)
    ]
    latents = 16 * 60 * 104 * 4 * 10
    assert live[1] - live[0] == 40 * frame + latents


def test_wan_carries_latents_in_fp32_a_mask_and_both_prompts():
    """pipeline_wan.py `__call__`, as a dry run of it shows: what its frame names at a step's second call."""
    result = asked("wan2.1-t2v-1.3b")
    latents, prompt = 16 * 21 * 60 * 104, 512 * 4096 * 2
    carried = phase(result, "denoise step").components.find("latents and prompts").bytes
    assert carried == pytest.approx(2 * 4 * latents + 2 * 2 * latents + 2 * prompt, abs=4096)


def test_a_denoiser_in_fp8_copies_its_convolutions_too():
    """hooks/layerwise_casting.py: whole modules are given the compute dtype and back; the largest of sd1.5's U-Net."""
    fp8 = asked("sd1.5", quantization="fp8", guidance_scale=1.0)
    assert phase(fp8, "denoise step").components.find("activations").bytes >= 2 * 2560 * 1280 * 9


def test_a_denoiser_alone_is_called_once_a_row():
    result = asked(f"{FLUX}:transformer", batch_size=2)
    assert [one.name for one in result.phases] == ["load", "denoise step"]
    assert result.model.num_parameters == 11_901_408_320


def test_frames_of_a_video_count_and_come_in_fours_and_one():
    few, many = (asked("wan2.1-t2v-1.3b", num_frames=count) for count in (17, 81))
    for name in ("denoise step", "VAE decode"):
        live = [phase(one, name).components.find("activations").bytes for one in (few, many)]
        assert live[0] < live[1]
    with pytest.raises(ScenarioError, match="multiple of 4 and one more"):
        asked("wan2.1-t2v-1.3b", num_frames=80)


def test_a_video_pipelines_second_denoiser_is_held_and_takes_turns():
    plain, turns = (asked("wan2.2-t2v-a14b", offload=one, num_frames=5) for one in ("none", "model"))
    held = {one.name for one in phase(plain, "denoise step").components.find("weights").children}
    assert held == {"text_encoder", "transformer", "transformer_2", "vae"}
    assert [one.name for one in phase(turns, "denoise step").components.find("weights").children] == ["transformer"]
    assert phase(plain, "VAE decode").components.find("weights/vae").children[0].name == "fp32 tensors"


def test_what_a_class_keeps_in_fp32_takes_four_bytes():
    weights = expected(asked("wan2.1-t2v-1.3b:transformer", num_frames=5), "weights")
    assert 2 * 1_418_996_800 < weights < 2.02 * 1_418_996_800


def test_loading_counts_weights_alone():
    result = estimate(FLUX, task="load")
    assert [one.name for one in result.phases] == ["load"]
    assert expected(result, "weights") == expected(asked(), "weights")


def test_suggestions_are_estimates_of_their_own_and_fit():
    scenario = Scenario.from_dict({"model": FLUX, "task": "generate", "gpu": "RTX 4090"})
    result = estimate(scenario)
    assert not result.verdict.fits
    found = suggestions(scenario, result, estimate)
    assert any("offload" in one.change.values for one in found)
    for one in found:
        changed = estimate(one.change.of(scenario))
        assert one.needed == changed.quantities["total_needed"]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"image_size": "1001x512"}, "image_size"),
        ({"image_size": "large"}, "image_size"),
        ({"image_size": "99999999x16"}, "image_size"),
        ({"num_frames": 9}, "num_frames"),
        ({"num_frames": 0}, "num_frames"),
        ({"quantization": "gptq"}, "quantization"),
        ({"offload": "disk"}, "offload"),
        ({"guidance_scale": -1}, "guidance_scale"),
    ],
)
def test_what_it_does_not_make_is_one_line(settings, key):
    with pytest.raises(ScenarioError, match=key):
        asked(**settings)


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_beams", 3), ("kv_cache_dtype", "fp8_e4m3"), ("new_tokens", 5), ("prompt_logits", True)],
)
def test_a_pipeline_has_nothing_that_only_text_takes(key, value):
    with pytest.raises(ScenarioError, match=f"generate.{key}: .* is a pipeline that generates no text"):
        asked(**{key: value})


def test_a_text_model_has_no_offload_and_a_pipeline_no_training():
    with pytest.raises(ScenarioError, match="no image or video pipeline"):
        asked("llama-3.1-8b", offload="model")
    with pytest.raises(ScenarioError, match="expected generate or load"):
        estimate(FLUX, task="train")
    with pytest.raises(SourceError, match="has no component"):
        asked(f"{FLUX}:scheduler")


def test_a_folder_with_configs_is_answered_as_its_pipeline(tmp_path):
    from vramwise.sources import resolve

    config = resolve("sd1.5").config
    parts = {name: table for name, table in config.items() if isinstance(table, dict)}
    index = {"_class_name": config["_class_name"], "scheduler": ["diffusers", "PNDMScheduler"]}
    for name, table in parts.items():
        index[name] = ["diffusers", table["_class_name"]]
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(table))
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    assert expected(asked(str(tmp_path)), "peak_allocated") == expected(asked("sd1.5"), "peak_allocated")


def test_no_low_end_is_below_the_weights_of_that_moment():
    for offload in ("none", "model", "group"):
        result = estimate({"model": "flux-dev", "task": "generate", "gpu": "4090", "generate": {"offload": offload}})
        peak = next(phase for phase in result.phases if phase.name == result.peak_phase)
        held = peak.components.find("weights")
        assert held is None or held.bytes <= result.quantities["peak_allocated"].low
        assert held is None or held.bytes < result.quantities["total_needed"].low
