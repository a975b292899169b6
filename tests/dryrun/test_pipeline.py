"""`vramwise dry-run` of a pipeline of Diffusers: real classes beside the estimate, and what is refused."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from vramwise import Scenario
from vramwise.cli.main import main
from vramwise.dryrun.card import Card
from vramwise.dryrun.pipeline import PipelineRun, cut_decoding
from vramwise.dryrun.pipeline_arguments import arguments_of
from vramwise.dryrun.pipeline_job import is_pipeline
from vramwise.dryrun.scenario import dry_runs
from vramwise.errors import UsageError, VramwiseError
from vramwise.measure.job import Job

pytest.importorskip("torch")
pytest.importorskip("transformers")

CLIP = {
    "_class_name": "CLIPTextModel", "hidden_act": "quick_gelu", "hidden_size": 32, "intermediate_size": 64,
    "max_position_embeddings": 77, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 1000,
}  # fmt: skip
UNET = {
    "_class_name": "UNet2DConditionModel", "attention_head_dim": 4, "block_out_channels": [32, 64],
    "cross_attention_dim": 32, "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "in_channels": 4,
    "layers_per_block": 1, "out_channels": 4, "sample_size": 32, "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}  # fmt: skip
VAE = {
    "_class_name": "AutoencoderKL", "block_out_channels": [32, 32, 64, 64],
    "down_block_types": ["DownEncoderBlock2D"] * 4, "in_channels": 3, "latent_channels": 4,
    "layers_per_block": 1, "norm_num_groups": 32, "out_channels": 3,
    "sample_size": 64, "up_block_types": ["UpDecoderBlock2D"] * 4,
}  # fmt: skip
SMALL = {"_class_name": "StableDiffusionPipeline", "text_encoder": CLIP, "unet": UNET, "vae": VAE}
T5 = {
    "_class_name": "T5EncoderModel", "d_ff": 64, "d_kv": 8, "d_model": 32, "feed_forward_proj": "gated-gelu",
    "num_heads": 4, "num_layers": 2, "relative_attention_num_buckets": 32, "vocab_size": 1000, "model_type": "t5",
}  # fmt: skip
WAYS = {
    "as it is": {},
    "tiles": {"batch_size": 2, "vae_tiling": True},
    "model": {"offload": "model"},
    "sequential": {"offload": "sequential"},
    "group": {"offload": "group"},
    "fp8": {"quantization": "fp8", "guidance_scale": 1.0},
}
ALONE = ("none", "model", "sequential", "group")
BESIDE = {"library workspace", "library workspaces", "CUDA context", "unsplit remainders"}
MOMENTS = ["load", "text encoder", "denoise step", "VAE decode"]


def scenario_of(settings, model=SMALL):
    return Scenario.from_dict({"model": model, "task": "generate", "generate": settings})


def tensors(phase):
    return sum(node.bytes for node in phase.components.children if node.name not in BESIDE)


@pytest.fixture(scope="module")
def answered():
    """Every way of a small pipeline, and its denoiser alone, in one process."""
    pytest.importorskip("diffusers")
    scenarios = [scenario_of({"image_size": "128x128", **settings}) for settings in WAYS.values()]
    alone = [scenario_of({"image_size": "256x256", "batch_size": 2, "offload": kind}, UNET) for kind in ALONE]
    loaded = Scenario.from_dict({"model": SMALL, "task": "load"})
    found = dry_runs([*scenarios, *alone, loaded])
    return dict(zip([*WAYS, *(f"alone, {kind}" for kind in ALONE), "load"], found, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_every_moment_is_as_the_estimate_has_it(answered, way):
    """To what small tensors are rounded to, of which a small pipeline has many."""
    result, estimated = answered[way]
    assert [phase.name for phase in result.phases] == MOMENTS
    assert result.peak_phase == estimated.peak_phase
    of_estimate = {phase.name: tensors(phase) for phase in estimated.phases}
    for phase in result.phases:
        assert tensors(phase) == pytest.approx(of_estimate[phase.name], rel=0.1, abs=70_000), phase.name
    assert result.model.num_parameters == estimated.model.num_parameters
    weights = [one.quantities["weights"].expected for one in (result, estimated)]
    assert weights[0] == pytest.approx(weights[1], rel=0.1) or way == "fp8"


def test_what_waits_on_the_host_is_not_on_the_card(answered):
    (result, _), (plain, _) = answered["model"], answered["as it is"]
    held = {phase.name: phase.components.find("weights") for phase in result.phases}
    assert held["load"] is None
    assert result.quantities["host_memory"] == plain.quantities["weights"]
    alone = sum(held[name].bytes for name in MOMENTS[1:])
    assert alone == pytest.approx(plain.quantities["weights"].expected, rel=0.02)


def test_a_denoiser_alone_is_called_once_and_a_pipeline_is_loaded(answered):
    result, estimated = answered["alone, none"]
    assert [phase.name for phase in result.phases] == ["load", "denoise step"]
    activations = [one.phases[-1].components.find("activations").bytes for one in (result, estimated)]
    assert activations[0] == pytest.approx(activations[1], rel=0.01)
    loaded, _ = answered["load"]
    assert [phase.name for phase in loaded.phases] == ["load"]
    assert loaded.quantities["weights"] == answered["as it is"][0].quantities["weights"]


@pytest.mark.parametrize("kind", ALONE[1:])
def test_a_denoiser_alone_waits_on_the_host_as_in_its_pipeline(answered, kind):
    result, estimated = answered[f"alone, {kind}"]
    (plain, _) = answered["alone, none"]
    assert result.phases[0].components.find("weights") is None
    assert result.quantities["host_memory"] == plain.quantities["weights"]
    sizes = [tensors(one.phases[-1]) for one in (result, estimated)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02, abs=70_000)


class Taking:
    """Something called with the arguments of one of Diffusers' pipelines."""

    def __init__(self, name, **parts):
        self.__class__ = type(
            name, (type(self),), {"__call__": getattr(pytest.importorskip("diffusers"), name).__call__}
        )
        vars(self).update(parts)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (
            "StableDiffusionImg2ImgPipeline",
            {"image_size": "64x64"},
            "Img2ImgPipeline takes no width: leave out --image-size",
        ),
        ("DDPMPipeline", {"guidance_scale": 2.0}, "DDPMPipeline takes no guidance_scale: leave out --guidance-scale"),
        ("HunyuanVideo15Pipeline", {"guidance_scale": 6.0}, "takes no guidance_scale: leave out --guidance-scale"),
        ("StableDiffusionPipeline", {"num_frames": 9}, "takes no num_frames: leave out --num-frames"),
        ("StableVideoDiffusionPipeline", {"batch_size": 2}, "takes no batch_size: leave out --batch-size"),
        ("StableDiffusionPipeline", {"image_size": "64"}, "image_size: expected WIDTHxHEIGHT"),
    ],
)
def test_what_a_call_does_not_take_is_said_with_its_flag(name, settings, said):
    with pytest.raises(UsageError, match=said):
        arguments_of(Taking(name), settings)


def test_a_call_is_given_what_it_takes():
    assert arguments_of(Taking("DDPMPipeline"), {"batch_size": 3}) == {
        "batch_size": 3, "num_inference_steps": 2, "output_type": "pt",
    }  # fmt: skip
    qwen = arguments_of(Taking("QwenImagePipeline"), {"guidance_scale": 4.0, "image_size": "64 × 32"})
    assert (qwen["true_cfg_scale"], qwen["negative_prompt"], qwen["width"], qwen["height"]) == (4.0, [" "], 64, 32)
    assert arguments_of(Taking("FluxPipeline"), {"guidance_scale": 3.5})["guidance_scale"] == 3.5


@pytest.mark.parametrize("wanted", ["tiling", "slicing"])
def test_a_pipeline_whose_decoder_has_no_tiles_says_so(wanted):
    with pytest.raises(UsageError, match=f"DDPMPipeline: it has no VAE: leave out --vae-{wanted}"):
        cut_decoding(Taking("DDPMPipeline"), {f"vae_{wanted}": True})
    vq = Taking("LDMSuperResolutionPipeline", vqvae=object())
    with pytest.raises(UsageError, match=f"object has no {wanted}: leave out --vae-{wanted}"):
        cut_decoding(vq, {f"vae_{wanted}": True})


def folder_of(place, class_name, parts, scheduler):
    """A folder as `save_pretrained` leaves it, without files of weights."""
    index = {
        "_class_name": class_name,
        "scheduler": ["diffusers", scheduler],
        "tokenizer": ["transformers", "T5Tokenizer"],
    }
    for name, (library, config) in parts.items():
        (place / name).mkdir()
        (place / name / "config.json").write_text(json.dumps(config), "utf-8")
        index[name] = [library, config["_class_name"]]
    (place / "model_index.json").write_text(json.dumps(index), "utf-8")
    return str(place)


def test_pipelines_that_no_estimate_describes_run_from_their_folders(tmp_path):
    pytest.importorskip("diffusers")
    transformer = {
        "_class_name": "CogVideoXTransformer3DModel", "num_attention_heads": 2, "attention_head_dim": 16,
        "num_layers": 2, "text_embed_dim": 32, "time_embed_dim": 32, "sample_width": 8,
        "sample_height": 8, "sample_frames": 9, "in_channels": 4, "out_channels": 4, "max_text_seq_length": 16,
    }  # fmt: skip
    vae = {
        "_class_name": "AutoencoderKLCogVideoX", "block_out_channels": [8, 8, 8, 8], "latent_channels": 4,
        "layers_per_block": 1, "norm_num_groups": 2, "down_block_types": ["CogVideoXDownBlock3D"] * 4,
        "up_block_types": ["CogVideoXUpBlock3D"] * 4,
    }  # fmt: skip
    parts = {"text_encoder": ("transformers", T5), "transformer": ("diffusers", transformer), "vae": ("diffusers", vae)}
    place = folder_of(tmp_path, "CogVideoXPipeline", parts, "CogVideoXDDIMScheduler")
    settings = {"image_size": "64x64", "num_frames": 9, "prompt_tokens": 16, "dtype": "bf16"}
    ((result, estimated),) = dry_runs([scenario_of(settings, place)])
    assert estimated is None
    assert [phase.name for phase in result.phases] == MOMENTS
    assert "CogVideoXPipeline itself ran" in " ".join(result.notes)


def test_t5_keeps_what_overflows_in_fp32_where_fp16_was_asked_for(tmp_path):
    """modeling_t5.py `_keep_in_fp32_modules`: the load's bytes differ by two a parameter of every `wo`."""
    pytest.importorskip("diffusers")
    from vramwise.dryrun.pipeline_parts import component_made

    sizes = {}
    for dtype in ("fp16", "bf16"):
        made = component_made({k: v for k, v in T5.items() if k != "model_type"}, dtype, "cpu")
        sizes[dtype] = sum(one.numel() * one.element_size() for one in made.parameters())
        assert made.shared.weight is made.encoder.embed_tokens.weight
    assert sizes["fp16"] - sizes["bf16"] == 2 * T5["num_layers"] * T5["d_ff"] * T5["d_model"]


def test_a_pipeline_is_known_by_its_class():
    assert is_pipeline(SMALL)
    assert is_pipeline(UNET)
    assert not is_pipeline({"model_type": "llama"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quantization": "bitsandbytes-nf4"}, "no fake of bitsandbytes"),
        ({"image_size": "63x64"}, "image_size"),
    ],
)
def test_what_cannot_run_is_one_line(settings, said):
    pytest.importorskip("diffusers")
    with pytest.raises(VramwiseError, match=said):
        list(dry_runs([scenario_of(settings)]))


def test_without_diffusers_the_extra_is_named(monkeypatch, capsys):
    from vramwise.measure import libraries

    monkeypatch.setattr(libraries, "is_installed", lambda name: name != "diffusers")
    assert main(["dry-run", "sd1.5", "--task", "generate"]) == 1
    assert capsys.readouterr().err.strip().endswith("pip install 'vramwise[diffusers]'")


def test_training_a_pipeline_is_refused():
    with pytest.raises((UsageError, VramwiseError)) as said:
        list(dry_runs([Scenario.from_dict({"model": "sd1.5", "task": "train"})]))
    assert "generate" in str(said.value)


class PartsAlone(PipelineRun):
    """A run that says what it was to call, of a pipeline without parts."""

    called = 0

    def _parts(self):
        return {}

    def _describe_parts(self, parts):
        assert parts == {}

    def _whole(self, parts):
        def call():
            self.called += 1

        return call


@pytest.mark.parametrize(("task", "calls"), [("load", 0), ("generate", 1)])
def test_a_load_calls_nothing(task, calls, monkeypatch):
    """Without Diffusers itself, which the runs above need."""
    stand_in = ModuleType("diffusers")
    stand_in.__version__, stand_in.__spec__ = "0", ModuleSpec("diffusers", None)
    monkeypatch.setitem(sys.modules, "diffusers", stand_in)
    job = Job({"parts": {}}, "made", {"task": task}, "cuda")
    run = PartsAlone(job, Card("card", 2**30, (8, 0)), 0, lambda done, of: None)
    run._run()
    assert run.called == calls
    assert run.finished == 1
