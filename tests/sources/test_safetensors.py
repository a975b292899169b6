"""Headers of safetensors files, friendly or not, and models of which only they are known."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import written_safetensors
from hypothesis import given
from hypothesis import strategies as st
from written_safetensors import header_of

from vramwise import estimate
from vramwise.errors import SourceError, UndescribedTypeError
from vramwise.formats.safetensors import LARGEST_HEADER_BYTES, find_weights, read_header, read_stored_weights
from vramwise.sources import resolve

UNKNOWN = {"model_type": "no_such_type", "torch_dtype": "bfloat16"}
TENSORS: dict[str, tuple[str, list[int], int]] = {
    "model.embed_tokens.weight": ("BF16", [100, 8], 1600),
    "model.layers.0.self_attn.q_proj.weight": ("F8_E4M3", [64, 64], 4096),
    "model.layers.0.mlp.up_proj.weight_packed": ("F4", [3, 3], 5),
    "model.norm.weight": ("F32", [8], 32),
    "scalar": ("F32", [], 4),
}
TOTAL = sum(size for _, _, size in TENSORS.values())


def write(path: Path, header: Any, data: int = TOTAL) -> str:
    return written_safetensors.write(path, header, data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "model.safetensors", header_of(TENSORS))
    (tmp_path / "config.json").write_text(json.dumps(UNKNOWN))
    return tmp_path


def test_tensors_of_one_file(folder: Path) -> None:
    stored = read_stored_weights(str(folder))
    assert [(t.name, t.dtype, list(t.shape), t.bytes) for t in stored.tensors] == [
        (name, kind, shape, size) for name, (kind, shape, size) in TENSORS.items()
    ]
    assert (stored.bytes, stored.num_files, stored.is_whole) == (TOTAL, 1, True)


def test_a_header_alone_is_enough_and_said(folder: Path) -> None:
    write(folder / "model.safetensors", header_of(TENSORS), data=0)
    assert not read_stored_weights(str(folder)).is_whole
    result = estimate({"model": str(folder), "task": "load"})
    assert result.quantities["weights"].expected == TOTAL
    assert "end before their data does" in result.notes[0]


def test_shards_by_their_index(tmp_path: Path) -> None:
    names = list(TENSORS)
    for number, part in enumerate((names[:2], names[2:])):
        write(tmp_path / f"model-{number}.safetensors", header_of({name: TENSORS[name] for name in part}))
    write(tmp_path / "consolidated.safetensors", header_of(TENSORS))
    where = {name: f"model-{number}.safetensors" for number, part in enumerate((names[:2], names[2:])) for name in part}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": TOTAL}, "weight_map": where}))
    stored = read_stored_weights(find_weights(str(tmp_path)) or "")
    assert (stored.bytes, stored.num_files) == (TOTAL, 2)
    index.unlink()
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    assert read_stored_weights(str(tmp_path)).bytes == TOTAL  # neither Mistral's copy nor an adapter


@pytest.mark.parametrize("file", ["../secret.safetensors", "/etc/passwd", "a.bin", 7])
def test_an_index_names_files_beside_it_only(tmp_path: Path, file: object) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": file}}))
    with pytest.raises(SourceError, match="expected the name of a"):
        read_stored_weights(str(index))


def test_an_index_that_is_wrong_about_a_shard(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "model.safetensors"}}))
    with pytest.raises(SourceError, match=r"says that model\.safetensors holds x, which it does not"):
        read_stored_weights(str(index))
    index.write_text(json.dumps({"weight_map": {"x": "gone.safetensors"}}))
    with pytest.raises(SourceError, match="there is no such file"):
        read_stored_weights(str(index))


def changed(**entry: Any) -> dict[str, Any]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}}


HOSTILE: dict[str, Any] = {
    "no JSON": b"{nothing",
    "binary": bytes(range(200, 256)),
    "deep": b'{"a":' * 100_000,
    "a list": b"[1]",
    "no table": b'{"x": 1}',
    "unknown dtype": changed(dtype="F12"),
    "dtype of another kind": changed(dtype=[]),
    "negative size": changed(shape=[-2]),
    "fraction": changed(shape=[2.0]),
    "truth": changed(shape=[True, True]),
    "huge axis": changed(shape=[2**60]),
    "many axes": changed(shape=[1] * 40),
    "no offsets": changed(data_offsets=None),
    "three offsets": changed(data_offsets=[0, 8, 8]),
    "offsets backwards": changed(data_offsets=[8, 0]),
    "another size": changed(data_offsets=[0, 9]),
    "a hole": changed(data_offsets=[8, 16]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_is_one_line(tmp_path: Path, what: str) -> None:
    path = write(tmp_path / "model.safetensors", HOSTILE[what], data=0)
    with pytest.raises(SourceError) as caught:
        estimate({"model": path, "task": "load"})
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 8, struct.pack("<Q", LARGEST_HEADER_BYTES + 1), bytes(8)])
def test_a_header_of_no_possible_length_is_not_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="is no safetensors file"):
        read_header(str(path))


def test_a_file_cut_off_inside_its_header(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "model.safetensors", header_of(TENSORS)))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SourceError, match="ends inside its header: 32 of"):
        read_header(str(path))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(content)
    with contextlib.suppress(SourceError):
        read_header(str(path))


@pytest.mark.parametrize("task", ["load", "serve", "generate"])
def test_weights_of_an_unknown_type_are_those_of_the_files(folder: Path, task: str) -> None:
    for path in (folder, folder / "model.safetensors"):
        result = estimate({"model": str(path), "task": task})
        assert result.quantities["weights"].expected == TOTAL
        assert "activations are not known" in result.notes[0]
        assert "kv_cache_bytes" not in result.quantities
        assert result.model.source.startswith("safetensors headers")


def test_another_dtype_and_a_verdict_only_where_weights_do_not_fit(folder: Path) -> None:
    elements = 100 * 8 + 64 * 64 + 9 + 8 + 1
    wide = estimate({"model": str(folder), "task": "serve", "serve": {"dtype": "fp32"}})
    assert wide.quantities["weights"].expected == 4 * elements
    assert estimate({"model": str(folder), "task": "serve", "gpu_total_bytes": 10**9}).verdict is None
    small = estimate({"model": str(folder), "task": "serve", "gpu_total_bytes": 1000}).verdict
    assert small is not None
    assert not small.fits


def test_training_holds_the_states_of_every_tensor(folder: Path) -> None:
    settings = {"precision": "fp32", "optimizer": "adamw"}
    result = estimate({"model": str(folder), "task": "train", "train": settings})
    step = result.phases[-1].components
    weights, states = step.find("weights"), step.find("optimizer states")
    assert weights is not None
    assert states is not None
    assert states.bytes > 2 * 4 * (100 * 8 + 64 * 64)
    assert result.quantities["weights"].expected == weights.bytes
    assert "total_needed" not in result.quantities
    assert "peak_allocated" not in result.quantities


def test_a_known_type_is_described_from_the_config_beside_its_weights(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(resolve("gpt2").config))
    result = estimate({"model": str(folder / "model.safetensors"), "task": "generate"})
    assert result.quantities["params"].expected == 124_439_808


def test_without_files_the_nearest_type_is_named() -> None:
    for config, like in (
        ({"model_type": "qwen9"}, "qwen"),
        ({"model_type": "zzz", "kv_lora_rank": 8}, "deepseek_v3"),
        ({"model_type": "zzz", "num_experts": 8, "auto_map": {}}, "qwen3_moe"),
        ({"model_type": "zzz", "hidden_size": 8, "num_hidden_layers": 1, "n_head": 2, "vocab_size": 9}, "llama"),
    ):
        with pytest.raises(UndescribedTypeError, match=rf"is not described yet.*say --like {like}"):
            estimate({"model": config, "task": "load"})


def test_transformers_own_class_where_it_is_installed() -> None:
    pytest.importorskip("transformers")
    tiny = {
        "model_type": "splinter", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 8, "vocab_size": 11, "max_position_embeddings": 8, "torch_dtype": "float32",
    }  # fmt: skip
    result = estimate({"model": tiny, "task": "load"})
    assert "on the meta device, activations are not known" in result.notes[0]
    params = result.quantities["params"].expected
    assert params > 11 * 16
    assert result.quantities["weights"].expected == 4 * params
