"""Models of timm and Diffusers, and types that nobody described: what their files alone tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from written_safetensors import header_of, write

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.errors import ScenarioError, SourceError, UndescribedTypeError
from vramwise.interop.huggingface_calculator import calculator_of_files
from vramwise.models.config import Config
from vramwise.models.registry import likely_type
from vramwise.serving.tensors import known_tensors
from vramwise.sources import resolve
from vramwise.sources.libraries import library_of

RESNET = {"architecture": "resnet18", "num_classes": 10, "pretrained_cfg": {"input_size": [3, 32, 32]}}
PIPELINE = {
    "_class_name": "TinyPipeline", "_diffusers_version": "0.42.1", "unet": ["diffusers", "UNet2DConditionModel"],
    "text_encoder": ["transformers", "CLIPTextModel"], "vae": ["diffusers", "AutoencoderKL"],
    "scheduler": ["diffusers", "DDIMScheduler"], "safety_checker": [None, None],
}  # fmt: skip
DECODER = {
    "model_type": "zzz9", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "torch_dtype": "bfloat16", "intermediate_size": 64,
}  # fmt: skip


def tensor(kind: str, *shape: int) -> tuple[str, list[int], int]:
    size = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8}[kind]
    for side in shape:
        size *= side
    return kind, list(shape), size


def repository(folder: Path, config: dict[str, Any], name: str = "config.json", **files: dict[str, Any]) -> str:
    """A folder with this config and safetensors files of these tensors; `a__b` is a/b."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(config))
    for file, tensors in files.items():
        path = folder / f"{file.replace('__', '/')}.safetensors"
        path.parent.mkdir(exist_ok=True)
        write(path, header_of(tensors), data=sum(size for _, _, size in tensors.values()))
    return str(folder)


def resnet(folder: Path) -> str:
    return repository(
        folder, RESNET,
        model={
            "conv1.weight": tensor("F32", 8, 3, 7, 7), "bn1.weight": tensor("F32", 8), "bn1.bias": tensor("F32", 8),
            "bn1.running_mean": tensor("F32", 8), "bn1.running_var": tensor("F32", 8),
            "bn1.num_batches_tracked": tensor("I64"), "fc.weight": tensor("F32", 10, 8), "fc.bias": tensor("F32", 10),
        },
    )  # fmt: skip


def pipeline(folder: Path) -> str:
    return repository(
        folder, PIPELINE, "model_index.json",
        unet__diffusion_pytorch_model={"conv_in.weight": tensor("F32", 4, 4)},
        **{"unet__diffusion_pytorch_model.fp16": {"conv_in.weight": tensor("F16", 4, 4)}},
        **{"text_encoder__model.fp16": {"text_model.layers.0.fc1.weight": tensor("F16", 8, 8)}},
    )  # fmt: skip


def test_a_timm_model_is_its_headers(tmp_path: Path) -> None:
    result = estimate({"model": resnet(tmp_path / "r"), "task": "load"})
    params = 8 * 3 * 49 + 16 + 80 + 10
    assert result.quantities["params"].expected == params
    assert result.quantities["weights"].expected == 4 * (params + 16) + 8  # with statistics and a count
    assert 'the timm architecture "resnet18" is not described' in result.notes[0]
    assert "taken as a model of timm: its config has architecture resnet18" in result.notes


def test_the_table_of_a_timm_model_is_that_of_accelerate(tmp_path: Path) -> None:
    """The same modules as real ones, sized by accelerate itself."""
    torch = pytest.importorskip("torch")
    sizes = pytest.importorskip("accelerate.utils").calculate_maximum_sizes

    class Real(torch.nn.Module):  # type: ignore[name-defined, misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 8, 7, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(8)
            self.fc = torch.nn.Linear(8, 10)

    known = known_tensors(resolve(resnet(tmp_path / "r")))
    assert known is not None
    assert known.files is not None
    row = calculator_of_files(known.files, has_head=True).rows[0]
    total, (largest, _) = sizes(Real())
    assert (row.total_bytes, row.largest_layer_bytes, row.training_bytes) == (total, largest, 4 * total)


def test_a_pipeline_is_the_sum_of_its_components(tmp_path: Path) -> None:
    result = estimate({"model": pipeline(tmp_path / "p"), "task": "load"})
    assert (
        result.quantities["weights"].expected == 16 * 4 + 64 * 2
    )  # the file without a word of its own where there is one
    weights = result.phases[0].components.children[0]
    assert {node.name: node.bytes for node in weights.children} == {"unet": 64, "text_encoder": 128}
    assert any("no safetensors files of vae are here" in note for note in result.notes)
    assert any("taken as a model of diffusers" in note for note in result.notes)


@pytest.mark.parametrize("make", [resnet, pipeline])
def test_every_one_has_an_overview_and_the_calculators_table(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    path = make(tmp_path / "m")
    for arguments in ([], ["--style", "huggingface"]):
        assert main(["estimate", path, *arguments]) == 0
        said = capsys.readouterr().out
        assert "taken as a model of" in said
        assert "llama" not in said
        assert all(row in said for row in ("float32", "float16/bfloat16", "int8", "int4"))
        assert main(["estimate", path, *arguments, "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        assert table["library"]["name"] in ("timm", "diffusers")
        assert len((table.get("tables") or table)["rows"]) == 4


def test_library_is_told_or_said() -> None:
    assert library_of(RESNET).name == "timm"
    assert library_of(PIPELINE).name == "diffusers"
    assert library_of(DECODER).name == "transformers"
    assert "--library says so" in library_of(DECODER, "timm").reason
    with pytest.raises(SourceError, match="has architecture resnet18, so it is a model of timm"):
        library_of(RESNET, "transformers")
    with pytest.raises(ScenarioError, match="library"):
        estimate({"model": "gpt2", "task": "load", "library": "keras"})


def test_a_described_type_as_another_librarys_model_is_its_headers(tmp_path: Path) -> None:
    path = repository(tmp_path / "g", resolve("gpt2").config, model={"wte.weight": tensor("F16", 5, 4)})
    assert estimate({"model": path, "task": "load"}).quantities["params"].expected == 124_439_808
    assert estimate({"model": path, "task": "load", "library": "timm"}).quantities["params"].expected == 20


def test_a_classifier_is_not_said_to_be_like_llama() -> None:
    for config in (RESNET, PIPELINE, {"model_type": "zzz", "depths": [2, 2], "hidden_sizes": [8, 16]}):
        with pytest.raises(UndescribedTypeError) as caught:
            estimate({"model": config, "task": "load"})
        assert "llama" not in str(caught.value)
        assert "--like" not in str(caught.value)
    assert likely_type(Config(DECODER)) == "llama"


def test_the_cache_of_an_undescribed_decoder_is_by_its_usual_keys(tmp_path: Path) -> None:
    path = repository(tmp_path / "d", DECODER, model={"model.embed.weight": tensor("BF16", 50, 32)})
    generate = {"batch_size": 2, "prompt_tokens": 90, "new_tokens": 11}
    result = estimate({"model": path, "task": "generate", "gpu": "4090", "generate": generate})
    assert result.quantities["kv_cache_bytes"].expected == 2 * 3 * 2 * 8 * 2 * 2 * 100
    assert {"total_needed", "peak_allocated"}.isdisjoint(result.quantities)
    assert result.verdict is None  # what fits is not known without activations
    served = estimate({"model": path, "task": "serve", "gpu": "4090", "serve": {"max_model_len": 1000}})
    assert served.phases[-1].components.children[-1].bytes == 2 * 3 * 2 * 8 * 2 * 1000
    assert any("a plain decoder's: 0.19 KiB a token" in note for note in served.notes)
    big = estimate(
        {"model": path, "task": "generate", "gpu_total_bytes": 2**30, "generate": {**generate, "batch_size": 100_000}}
    )
    assert big.verdict is not None
    assert not big.verdict.fits


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kv_lora_rank": 8}, "has kv_lora_rank"), ({"layer_types": ["mamba"]}, "has layer_types"),
        ({"vocab_size": None}, "vocab_size is missing"), ({"num_key_value_heads": 3}, "does not divide"),
    ],
)  # fmt: skip
def test_a_cache_that_the_keys_do_not_tell_is_said_to_be_unknown(
    more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = repository(tmp_path / "d", {**DECODER, **more}, model={"x.weight": tensor("BF16", 5, 3)})
    result = estimate({"model": path, "task": "generate", "generate": {"prompt_tokens": 9, "new_tokens": 1}})
    assert "kv_cache_bytes" not in result.quantities
    assert any("the KV cache is not known" in note and why in note for note in result.notes)


@pytest.mark.parametrize("name", ["black-forest-labs/FLUX.1-dev", "stable-diffusion-v1-5/stable-diffusion-v1-5"])
def test_a_built_in_pipeline_has_the_calculators_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its components' configs tell their tensors."""
    assert main(["estimate", name, "--style", "huggingface", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert main(["estimate", name, "--style", "huggingface"]) == 0
    assert "from the configs of its components" in " ".join(capsys.readouterr().out.split())
    assert main(["estimate", name, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["ways"]["as it is"]
    assert table["true_parameters"] == whole["model"]["num_parameters"]
