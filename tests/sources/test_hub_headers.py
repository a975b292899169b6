"""A config and the headers of its files on a hub, compared: what differs is said, and counted where it is loaded so."""

from __future__ import annotations

from typing import Any

import pytest
from fake_hub import FakeHub, safetensors, sharded

from vramwise import estimate
from vramwise.models import describe
from vramwise.sources import resolve

NAME = "someone/tiny"
TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 4, "vocab_size": 1000, "torch_dtype": "bfloat16",
}  # fmt: skip
FP8 = {**TINY, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
Tensors = dict[str, tuple[str, list[int]]]


def tensors_of(config: dict[str, Any], linear: str = "BF16") -> Tensors:
    """The tensors of the class, its layers' weights in the dtype `linear`, with scales where that has eight bits."""
    found: Tensors = {}
    for p in describe(config).parameters:
        of_a_layer = "proj" in p.name
        found[p.name] = (linear if of_a_layer else "BF16", list(p.shape))
        if of_a_layer and linear.startswith("F8"):
            found[f"{p.name}_scale_inv"] = ("F32", [-(-size // 128) for size in p.shape])
    return found


def by_layer(tensors: Tensors) -> list[Tensors]:
    """A file for each layer, the last for the rest."""
    files: list[Tensors] = [{} for _ in range(5)]
    for name, kind in tensors.items():
        files[int(name.split(".")[2]) if ".layers." in name else 4][name] = kind
    return files


def answer(**more: Any) -> tuple[float, list[str]]:
    result = estimate({"model": NAME, "task": "load", **more})
    return result.quantities["weights"].expected, [note for note in result.notes if "files" in note]


def test_files_that_say_the_same_say_nothing(network: FakeHub) -> None:
    network.add(NAME, {"config.json": FP8, **sharded(by_layer(tensors_of(FP8, "F8_E4M3")))})
    weights, said = answer()
    assert said == []
    assert weights == estimate({"model": FP8, "task": "load"}).quantities["weights"].expected
    assert sum(path.endswith(".safetensors") for path in network.paths()) == 5


@pytest.mark.parametrize("source", ["hub", "modelscope"])
def test_what_differs_is_said_with_its_bytes(network: FakeHub, source: str) -> None:
    tensors = tensors_of(TINY)
    tensors["model.embed_tokens.weight"] = ("F32", [1000, 128])
    tensors["model.layers.4.mlp.up_proj.weight"] = ("BF16", [256, 128])
    network.add(NAME, {"config.json": TINY, "model.safetensors": safetensors(tensors)})
    weights, said = answer(source=source)
    assert weights == estimate({"model": TINY, "task": "load"}).quantities["weights"].expected
    assert any("model.embed_tokens.weight (500.00 KiB) in fp32, not bf16" in note for note in said)
    assert any("model.layers.*.mlp.up_proj.weight (64.00 KiB), which predicts further tokens" in note for note in said)


def test_a_module_that_stays_in_16_bit_is_counted_so(network: FakeHub) -> None:
    tensors = tensors_of(FP8, "F8_E4M3")
    for layer in range(4):
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        tensors[name] = ("BF16", [128, 128])
        del tensors[f"{name}_scale_inv"]
    network.add(NAME, {"config.json": FP8, **sharded(by_layer(tensors))})
    weights, said = answer()
    quantized = estimate({"model": FP8, "task": "load"}).quantities["weights"].expected
    assert "self_attn.o_proj.weight (128.00 KiB) unquantized" in said[0]
    assert weights - quantized == pytest.approx(4 * 128 * 128, abs=4 * 512)


def test_of_many_large_headers_a_part_is_compared_and_stands_for_all(
    network: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramwise.formats.safetensors.MOST_MOVED_BYTES", 300_000)
    config = {**FP8, "num_hidden_layers": 20}
    tensors = tensors_of(config, "F8_E4M3")
    for layer in range(20):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        tensors[name] = ("BF16", [128, 256])
        del tensors[f"{name}_scale_inv"]
    files: list[Tensors] = [{} for _ in range(21)]
    for name, kind in tensors.items():
        files[int(name.split(".")[2]) if ".layers." in name else 20][name] = kind
    padded = {f"model-{n:05}-of-00021.safetensors": safetensors(one, padded=30_000) for n, one in enumerate(files, 1)}
    where = {tensor: file for file, one in zip(padded, files, strict=True) for tensor in one}
    network.add(NAME, {"config.json": config, **padded, "model.safetensors.index.json": {"weight_map": where}})
    stored = resolve(NAME).stored_weights()
    assert stored is not None
    assert 0 < stored.unread_files < 21
    weights, said = answer()
    assert not any("lack" in note for note in said)
    assert any("of 21 files were compared with the config" in note for note in said)
    quantized = estimate({"model": config, "task": "load"}).quantities["weights"].expected
    assert weights - quantized == pytest.approx(20 * 128 * 256, abs=20 * 512)


def test_headers_that_cannot_be_read_hold_up_no_answer(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY, "model.safetensors": b"no such header" * 100})
    weights, said = answer()
    assert weights == estimate({"model": TINY, "task": "load"}).quantities["weights"].expected
    assert len(said) == 1
    assert "are not compared" in said[0]


def test_they_are_asked_for_once_and_kept(network: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    network.add(NAME, {"config.json": TINY, **sharded(by_layer(tensors_of(TINY)))})
    first, _ = answer()
    asked = len(network.asked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("vramwise.estimation._models", {})
    assert answer() == (first, [])
    assert len(network.asked) == asked
