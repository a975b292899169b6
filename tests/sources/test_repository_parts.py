"""Parts of a repository: GGUF files by quantization, folders, adapters with their base model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub, safetensors

from vramwise import estimate
from vramwise.errors import SourceError
from vramwise.sources import resolve
from vramwise.sources.adapters import MOST_TARGETS
from vramwise.sources.reference import Reference, reference

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 1000, "torch_dtype": "bfloat16",
}  # fmt: skip
NAME = "someone/tiny"


def gguf(blocks: int, *, tokens: int = 10, split: tuple[int, int] = (0, 1)) -> bytes:
    """A Llama of `blocks` blocks; of a split file the first part holds the metadata, each part one tensor."""
    from io import BytesIO
    from struct import pack

    out = BytesIO()
    pairs: list[tuple[str, int, bytes]] = [("general.architecture", 8, _text("llama"))]
    pairs += [
        (f"llama.{key}", 4, pack("<I", value))
        for key, value in {
            "embedding_length": 64, "block_count": blocks, "feed_forward_length": 128, "attention.head_count": 4,
            "context_length": 512, "vocab_size": 1000,
        }.items()
    ]  # fmt: skip
    pairs.append(("tokenizer.ggml.tokens", 9, pack("<IQ", 8, tokens) + _text("token") * tokens))
    pairs = pairs if split[0] == 0 else []
    name = _text("token_embd.weight" if split[0] == 0 else f"blk.{split[0]}.attn_q.weight")
    out.write(b"GGUF" + pack("<IQQ", 3, 1, len(pairs)))
    for key, kind, value in pairs:
        out.write(_text(key) + pack("<I", kind) + value)
    out.write(name + pack("<IQQ", 2, 64, 1000) + pack("<IQ", 0, 0))
    start = -(-out.tell() // 32) * 32
    return out.getvalue().ljust(start, b"\0") + bytes(64 * 1000 * 4)


def _text(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


REFERENCES = {
    "org/name": Reference("org/name"),
    "org/name@v1": Reference("org/name", "v1"),
    "org/name:Q4_K_M": Reference("org/name", None, "Q4_K_M"),
    "org/name@refs/pr/1:Q8_0": Reference("org/name", "refs/pr/1", "Q8_0"),
    "llama3.1:8b": Reference("llama3.1:8b"),
    "hf.co/org/name:Q4_0": Reference("org/name", None, "Q4_0", "hub"),
    "hf://org/name@v1/sub/a.gguf": Reference("org/name", "v1", "sub/a.gguf", "hub"),
    "https://huggingface.co/org/name": Reference("org/name", None, None, "hub"),
    "https://huggingface.co/org/name/tree/v1": Reference("org/name", "v1", None, "hub"),
    "https://huggingface.co/org/name/tree/main/sub": Reference("org/name", None, "sub", "hub"),
    "https://huggingface.co/org/name/blob/refs%2Fpr%2F1/a.gguf?x#y": Reference(
        "org/name", "refs/pr/1", "a.gguf", "hub"
    ),
    "https://huggingface.co/org/name/resolve/v1/config.json": Reference("org/name", "v1", None, "hub"),
    "https://huggingface.co/gpt2/tree/v1": Reference("gpt2", "v1", None, "hub"),
    "https://modelscope.cn/models/org/name/resolve/v1/a.gguf": Reference("org/name", "v1", "a.gguf", "modelscope"),
    "https://modelscope.cn/models/org/name/file/view/master/b.gguf": Reference(
        "org/name", None, "b.gguf", "modelscope"
    ),
    "https://www.modelscope.cn/models/org/name/summary": Reference("org/name", None, None, "modelscope"),
}


@pytest.mark.parametrize(("text", "taken"), REFERENCES.items(), ids=REFERENCES)
def test_names_and_addresses_are_taken_apart(text: str, taken: Reference) -> None:
    assert reference(text) == taken


@pytest.fixture
def quants(network: FakeHub) -> FakeHub:
    network.add("someone/tiny-GGUF", {
        "tiny-Q2_K.gguf": gguf(2), "tiny-Q4_K_M.gguf": gguf(4), "tiny-UD-Q4_K_XL.gguf": gguf(5),
        "mmproj-F16.gguf": b"never read",
        **{f"Q8_0/tiny-Q8_0-0000{n}-of-00003.gguf": gguf(8, split=(n - 1, 3)) for n in (1, 2, 3)},
    })  # fmt: skip
    return network


@pytest.mark.parametrize(
    ("pick", "layers"),
    [("Q2_K", 2), ("q4_k_m", 4), ("Q4_K_XL", 5), ("Q8_0", 8), ("tiny-Q2_K.gguf", 2),
     ("Q8_0/tiny-Q8_0-00002-of-00003.gguf", 8)],
)  # fmt: skip
def test_a_gguf_by_its_quantization(quants: FakeHub, pick: str, layers: int) -> None:
    found = resolve(f"someone/tiny-GGUF:{pick}")
    assert found.config["num_hidden_layers"] == layers
    assert len(found.config["gguf_tensors"]) == (3 if layers == 8 else 1)  # type: ignore[arg-type]


def test_a_repository_of_gguf_files_stands_for_the_usual_one(quants: FakeHub) -> None:
    found = resolve("someone/tiny-GGUF")
    assert found.config["num_hidden_layers"] == 4
    assert "tiny-Q4_K_M.gguf of 4 GGUF files" in str(found.note)
    assert "Q2_K" in str(found.note)


def test_what_is_there_is_listed_when_nothing_fits(quants: FakeHub) -> None:
    with pytest.raises(SourceError, match='has no "Q3_K_S": it has the GGUF files Q2_K, Q4_K_M') as caught:
        resolve("someone/tiny-GGUF:Q3_K_S")
    assert "UD-Q4_K_XL, Q8_0 and the folders Q8_0" in str(caught.value).replace("Q8_0, UD-Q4_K_XL", "UD-Q4_K_XL, Q8_0")


def test_a_long_list_of_tokens_is_passed_over(network: FakeHub) -> None:
    network.add("someone/long-GGUF", {"long.gguf": gguf(2, tokens=200_000)})
    assert resolve("someone/long-GGUF").config["num_hidden_layers"] == 2
    assert len([one for one in network.asked if one.path.endswith(".gguf")]) <= 5


def test_a_folder_of_a_repository(network: FakeHub) -> None:
    network.add(NAME, {"sub/config.json": TINY, "sub/model.safetensors": safetensors({"a": ("F32", [2])})})
    found = resolve(f"{NAME}:sub")
    stored = found.stored_weights()
    assert (found.id, found.config) == (f"{NAME}:sub", TINY)
    assert stored is not None
    assert [tensor.name for tensor in stored.tensors] == ["a"]


def test_the_same_of_a_folder_on_disk(tmp_path: Path) -> None:
    for name, blocks in (("a-Q4_K_M.gguf", 4), ("a-Q8_0.gguf", 8)):
        (tmp_path / name).write_bytes(gguf(blocks))
    assert resolve(f"{tmp_path}:Q8_0").config["num_hidden_layers"] == 8
    assert resolve(str(tmp_path)).config["num_hidden_layers"] == 4
    with pytest.raises(SourceError, match="it has the GGUF files Q4_K_M, Q8_0"):
        resolve(f"{tmp_path}:Q2_K")


ADAPTER = {
    "peft_type": "LORA", "base_model_name_or_path": NAME, "r": 32, "target_modules": ["q_proj", "v_proj"],
    "lora_dropout": 0.05,
}  # fmt: skip


def adapter_files(**changed: Any) -> dict[str, Any]:
    weights = safetensors({"base.q_proj.lora_A.weight": ("BF16", [32, 64])})
    return {"adapter_config.json": {**ADAPTER, **changed}, "adapter_model.safetensors": weights}


def test_an_adapter_takes_its_base_model_along(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY})
    network.add("someone/adapter", adapter_files())
    found = resolve("someone/adapter")
    assert (found.id, found.config) == (NAME, TINY)
    assert found.adapter is not None
    assert (found.adapter.rank, found.adapter.targets, found.adapter.dtype) == (32, ("q_proj", "v_proj"), "bf16")
    assert found.adapter.stored_bytes == 32 * 64 * 2
    assert f"someone/adapter is an adapter (LORA of rank 32) of {NAME}" in str(found.note)


def test_targets_are_kept_up_to_their_limit(tmp_path: Path) -> None:
    for many, kept in ((MOST_TARGETS, MOST_TARGETS), (MOST_TARGETS + 1, 0)):
        changed = {"base_model_name_or_path": "gpt2", "target_modules": [f"layer.{i}" for i in range(many)]}
        (tmp_path / "adapter_config.json").write_text(json.dumps({**ADAPTER, **changed}))
        adapter = resolve(str(tmp_path)).adapter
        assert adapter is not None
        assert len(adapter.targets) == kept


def test_an_adapter_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({**ADAPTER, "base_model_name_or_path": "gpt2"}))
    assert resolve(str(tmp_path)).config["model_type"] == "gpt2"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"base_model_name_or_path": None}, "names no base model"),
        ({"base_model_name_or_path": "someone/gone"}, "its base model is not to be had"),
        ({"base_model_name_or_path": "someone/adapter"}, "adapter"),
    ],
)
def test_an_adapter_without_a_base(network: FakeHub, changed: dict[str, Any], said: str) -> None:
    network.add("someone/adapter", adapter_files(**changed))
    with pytest.raises(SourceError, match=said):
        resolve("someone/adapter")


def test_a_path_in_a_strangers_adapter_is_not_read_here(network: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    network.add("someone/adapter", adapter_files(base_model_name_or_path=str(tmp_path)))
    with pytest.raises(SourceError, match="is a place on the machine that trained it"):
        resolve("someone/adapter")
    network.add("someone/other", adapter_files(base_model_name_or_path="/mnt/models/Meta-Llama-3.1-8B"))
    assert resolve("someone/other").id == "meta-llama/Meta-Llama-3.1-8B"


def test_training_goes_on_with_the_adapters_settings(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY})
    network.add("someone/adapter", adapter_files())
    train = estimate({"model": "someone/adapter", "task": "train"}).scenario["train"]
    assert isinstance(train, dict)
    assert (train["method"], train["lora_rank"], train["lora_dtype"]) == ("lora", 32, "bf16")
    assert train["lora_targets"] == ["q_proj", "v_proj"]
    own = estimate({"model": "someone/adapter", "task": "train", "train": {"method": "lora", "lora_rank": 4}})
    assert own.scenario["train"]["lora_rank"] == 4  # type: ignore[index]
    assert any("from the adapter someone/adapter: lora_targets q_proj v_proj" in note for note in own.notes)
    whole = estimate({"model": "someone/adapter", "task": "train", "train": {"method": "full"}})
    assert any("trains without the adapter" in note for note in whole.notes)


def test_serving_holds_the_adapter(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY})
    network.add("someone/adapter", adapter_files())
    asked = {"task": "serve", "gpu": "rtx-4090", "serve": {"engine": "vllm"}}
    plain, adapted = (estimate({"model": name, **asked}) for name in (NAME, "someone/adapter"))
    assert adapted.scenario["serve"]["max_lora_rank"] == 32  # type: ignore[index]
    assert adapted.quantities["kv_cache_bytes"].expected < plain.quantities["kv_cache_bytes"].expected
    other = estimate({"model": "someone/adapter", "task": "load"})
    assert any("someone/adapter (0.00 MiB in its file) is not counted" in note for note in other.notes)


@pytest.mark.parametrize("engine", ["tgi", "tensorrt-llm", "llama.cpp", "sglang"])
def test_every_engine_that_takes_adapters_holds_the_one_that_was_named(network: FakeHub, engine: str) -> None:
    network.add(NAME, {"config.json": TINY})
    network.add("someone/adapter", adapter_files())
    scenario = {"model": "someone/adapter", "task": "serve", "gpu": "rtx-4090", "serve": {"engine": engine}}
    result = estimate(scenario)
    serve = result.scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["max_loras"], serve["max_lora_rank"], serve["lora_targets"]) == (1, 32, ["q_proj", "v_proj"])
    assert any("from the adapter someone/adapter" in note for note in result.notes)
    assert not any("is not counted" in note for note in result.notes)
