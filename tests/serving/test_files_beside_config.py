"""Headers of a checkpoint's files beside what its config describes, with files that transformers itself wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


def saved(folder: Path, kind: str = "llama", **more: Any) -> Path:
    config = transformers.AutoConfig.for_model(kind, **{**TINY, **more})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return folder


def rewritten(folder: Path, change: Any) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def answer(folder: Path) -> tuple[float, list[str]]:
    result = estimate({"model": str(folder), "task": "load"})
    return result.quantities["weights"].expected, [note for note in result.notes if "files" in note]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {}), ("llama", {"tie_word_embeddings": True}), ("qwen3", {"head_dim": 8}),
        ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}),
        ("mixtral", {"num_local_experts": 4}),
    ],
)  # fmt: skip
def test_files_that_say_the_same_change_nothing(kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", kind, **more)
    with_files, notes = answer(folder)
    assert notes == []
    (folder / "model.safetensors").unlink()
    assert answer(folder)[0] == with_files


def test_what_the_files_hold_otherwise_is_named_with_its_bytes(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", tie_word_embeddings=True)
    before, _ = answer(folder)

    def change(tensors: dict[str, Any]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].float()
        tensors["model.layers.2.mlp.up_proj.weight"] = torch.zeros(64, 32, dtype=torch.bfloat16)
        del tensors["model.norm.weight"]

    rewritten(folder, change)
    copy = tmp_path / "again"
    folder.rename(copy)  # a place that was not asked about before
    weights, notes = answer(copy)
    assert weights == before  # what loads them casts, ties and leaves out
    said = " | ".join(notes)
    assert "hold model.embed_tokens.weight (12.50 KiB) in fp32, not bf16" in said
    assert "hold lm_head.weight (6.25 KiB) although it is tied" in said
    assert "lack model.norm.weight (32 values)" in said
    assert "hold model.layers.*.mlp.up_proj.weight (4.00 KiB), which predicts further tokens" in said


def test_a_dtype_that_the_config_leaves_open_is_the_files(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if "dtype" not in k}))
    narrow, _ = answer(folder)
    rewritten(folder, lambda tensors: tensors.update({name: one.float() for name, one in tensors.items()}))
    copy = tmp_path / "again"
    folder.rename(copy)
    assert answer(copy)[0] > 1.9 * narrow


def test_a_layer_that_is_whole_in_a_quantized_checkpoint_is_counted_whole(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", hidden_size=128, intermediate_size=128)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config))

    def change(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if "proj" in name and "layers.1.mlp" not in name]:
            rows, columns = tensors[name].shape
            tensors[name] = torch.zeros(rows, columns, dtype=torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = torch.zeros(-(-rows // 128), -(-columns // 128))

    rewritten(folder, change)
    weights, notes = answer(folder)
    assert "hold model.layers.*.mlp.gate_proj.weight, model.layers.*.mlp.up_proj.weight and 1 kinds more" in notes[0]
    assert "unquantized though quantization_config does not leave it out" in notes[0]
    whole = estimate({"model": config, "task": "load"}).quantities["weights"].expected
    assert weights - whole == pytest.approx(3 * 128 * 128, abs=3 * 512)


def test_broken_files_beside_a_good_config_are_one_note(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"nothing")
    _, notes = answer(folder)
    assert len(notes) == 1
    assert "are not compared" in notes[0]
