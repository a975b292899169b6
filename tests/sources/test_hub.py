"""Models by the name of their repository: what is asked of a hub, what is kept, and what is said of every fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub, Sparse, safetensors, sharded

from vramwise import estimate
from vramwise.errors import SourceError
from vramwise.sources import places, resolve
from vramwise.sources.places import WouldAsk, found_on_hub

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 1000, "torch_dtype": "bfloat16",
}  # fmt: skip
TENSORS = {"a.weight": ("BF16", [64, 64]), "b.weight": ("F32", [10])}
NAME = "someone/tiny"


def refused(name: str = NAME, **how: Any) -> str:
    """The one line that is said instead of an answer."""
    with pytest.raises(SourceError) as caught:
        resolve(name, **how)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.exit_code == 4
    return line


# What is found


def test_names_that_hold_a_word_are_found(network: FakeHub) -> None:
    for name in ("someone/tiny", "else/Tiny-2", "else/large"):
        network.add(name, {})
    assert found_on_hub("tiny", 9) == ["someone/tiny", "else/Tiny-2"]
    assert found_on_hub("tiny", 1) == ["someone/tiny"]
    assert network.paths() == [f"/api/models?search=tiny&sort=downloads&limit={most}" for most in (9, 1)]


def test_why_nothing_is_found_is_said(network: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    network.status = 500
    with pytest.raises(SourceError, match=r'models by the name "a&b": .* is out of order'):
        found_on_hub("a&b", 9)
    network.status = None
    network.add("<script>", {})
    assert found_on_hub("script", 9) == []
    monkeypatch.setattr(places, "_asks", False)
    with pytest.raises(WouldAsk):
        found_on_hub("tiny", 9)
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SourceError, match="offline, as HF_HUB_OFFLINE says"):
        found_on_hub("tiny", 9)


# What is read


def test_a_config_is_all_that_a_name_asks_for(network: FakeHub) -> None:
    repo = network.add(NAME, {"config.json": TINY, "model.safetensors": safetensors(TENSORS)})
    found = resolve(NAME)
    assert (found.id, found.config) == (NAME, TINY)
    assert found.origin.endswith(f"{NAME} at {repo.commit[:12]}")
    assert network.paths() == [
        f"/api/models/{NAME}/revision/main?blobs=true", f"/{NAME}/resolve/{repo.commit}/config.json",
    ]  # fmt: skip


def test_headers_of_one_file(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY, "model.safetensors": safetensors(TENSORS)})
    stored = resolve(NAME).stored_weights()
    assert stored is not None
    assert {tensor.name: (tensor.dtype, list(tensor.shape)) for tensor in stored.tensors} == TENSORS
    assert stored.is_whole


def test_headers_of_shards_without_their_index(network: FakeHub) -> None:
    shards = [{f"layer.{n}.weight": ("BF16", [128, 128])} for n in range(12)]
    network.add(NAME, {"config.json": TINY, **sharded(shards)})
    stored = resolve(NAME).stored_weights()
    assert stored is not None
    assert [tensor.name for tensor in stored.tensors] == [f"layer.{n}.weight" for n in range(12)]
    assert sum(path.endswith(".index.json") for path in network.paths()) == 0


def test_a_long_header_is_read_to_its_end(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY, "model.safetensors": safetensors(TENSORS, padded=300_000)})
    stored = resolve(NAME).stored_weights()
    assert stored is not None
    assert len(stored.tensors) == 2
    ranges = [one.range for one in network.asked if one.path.endswith("model.safetensors")]
    assert ranges[-1] == "bytes=65536-300007"


def test_four_hundred_gigabytes_move_less_than_five_megabytes(network: FakeHub) -> None:
    experts = {
        f"model.layers.{n}.mlp.experts.{e}.up_proj.weight": ("BF16", [4096, 1536]) for n in (1, 2) for e in range(138)
    }
    shards = [{f"{n}.{name}": kind for name, kind in experts.items()} for n in range(116)]
    repo = network.add(NAME, {"config.json": TINY, **sharded(shards)})
    assert sum(content.size for content in repo.files.values()) > 400e9
    stored = resolve(NAME).stored_weights()
    assert stored is not None
    assert len(stored.tensors) == 116 * 276
    assert network.sent_bytes < 5e6


@pytest.mark.parametrize("name", ["model-{}-of-24", "model-x{}"])  # the second is numbered by nothing but its index
def test_headers_that_would_be_more_are_read_in_part_and_said(network: FakeHub, name: str) -> None:
    shards = [{f"{n}.mlp.up_proj.weight": ("F8_E4M3", [65536, 65536])} for n in range(24)]
    shards[0] = {"embed_tokens.weight": ("BF16", [65536, 512])}
    files = {f"{name.format(n)}.safetensors": safetensors(one, padded=400_000) for n, one in enumerate(shards, 1)}
    where = {tensor: file for file, shard in zip(files, shards, strict=True) for tensor in shard}
    index = json.dumps({"weight_map": where}) + " " * 3_000_000
    repo = network.add(NAME, {"config.json": json.dumps({"model_type": "nobodys_type"}), **files,
                              "model.safetensors.index.json": index})  # fmt: skip
    stored = resolve(NAME).stored_weights()
    assert stored is not None
    assert (stored.num_files, stored.unread_files) == (24, 13)
    assert network.sent_bytes < 5e6
    whole = sum(content.size for file, content in repo.files.items() if file.endswith(".safetensors"))
    assert stored.bytes == pytest.approx(whole, rel=1e-3)
    result = estimate({"model": NAME, "task": "load"})
    assert any("headers of 11 of 24 files were read" in note for note in result.notes)
    params, true = result.quantities["params"], 65536 * 512 + 23 * 65536**2
    assert params.low < true <= params.high
    assert params.expected == pytest.approx(true, rel=0.01)


def test_what_is_known_of_a_commit_is_not_asked_for_again(network: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    network.add(NAME, {"config.json": TINY, **sharded([TENSORS, {"c": ("F32", [3])}])})
    assert resolve(NAME).stored_weights() is not None
    network.asked.clear()
    forget()
    assert resolve(NAME).stored_weights() is not None
    assert network.paths() == [f"/api/models/{NAME}/revision/main?blobs=true"]  # whether main has moved
    network.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert resolve(NAME).origin.endswith("kept from before")
    assert network.paths() == []


def test_a_broken_entry_is_fetched_anew(network: FakeHub, tmp_path: Path) -> None:
    network.add(NAME, {"config.json": TINY})
    resolve(NAME)
    for entry in (tmp_path / "kept").rglob("*"):
        if entry.is_file():
            entry.write_bytes(entry.read_bytes()[:-3] + b"xyz")
    forget()
    assert resolve(NAME).config == TINY


def test_a_cache_that_cannot_be_written_is_no_fault(network: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file in its place")
    network.add(NAME, {"config.json": TINY})
    assert resolve(NAME).config == TINY


def test_names_of_the_catalog_ask_nobody(network: FakeHub) -> None:
    for name in ("meta-llama/Llama-3.1-8B", "llama 3.1 8b", "https://huggingface.co/Qwen/Qwen2.5-7B"):
        assert resolve(name).origin.startswith("catalog")
    assert network.asked == []


def test_a_source_is_forced(network: FakeHub) -> None:
    network.add("Qwen/Qwen2.5-7B", {"config.json": TINY})
    assert resolve("Qwen/Qwen2.5-7B").origin.startswith("catalog")
    assert resolve("Qwen/Qwen2.5-7B", source="hub").config == TINY
    assert resolve("Qwen/Qwen2.5-7B", source="modelscope").origin.startswith("ModelScope")
    assert resolve("hub://Qwen/Qwen2.5-7B").config == TINY
    assert "unknown model" in refused(NAME, source="catalog")
    assert "expected one of auto, hub" in refused(NAME, source="elsewhere")


def test_a_revision(network: FakeHub) -> None:
    repo = network.add(NAME, {"config.json": TINY}, revisions=["v2", "refs/pr/1"])
    for name in (f"{NAME}@v2", f"{NAME}@{repo.commit}", f"{NAME}@refs/pr/1", f"https://huggingface.co/{NAME}/tree/v2"):
        assert resolve(name).config == TINY
    assert resolve(NAME, revision="v2").config == TINY
    assert network.paths()[0] == f"/api/models/{NAME}/revision/v2?blobs=true"
    assert "has no revision v3" in refused(f"{NAME}@v3")
    assert "revision says another" in refused(f"{NAME}@v2", revision="v1")


def test_a_mirror_that_has_no_list_of_files(network: FakeHub) -> None:
    network.has_no_list = True
    network.add(NAME, {"config.json": TINY, **sharded([TENSORS, {"c": ("F32", [3])}])})
    found = resolve(NAME)
    stored = found.stored_weights()
    assert found.config == TINY
    assert stored is not None
    assert len(stored.tensors) == 3
    assert found.origin.startswith("Hugging Face Hub")  # ModelScope would have it, too


def test_modelscope_answers_for_what_the_hub_does_not_have(network: FakeHub) -> None:
    with FakeHub() as other, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELSCOPE_ENDPOINT", other.endpoint)
        other.add(NAME, {"config.json": TINY, "model.safetensors": safetensors(TENSORS)})
        found = resolve(NAME)
        assert found.origin.startswith("ModelScope")
        assert found.stored_weights() is not None


def test_modelscopes_cache_on_disk(network: FakeHub, tmp_path: Path) -> None:
    for place in ("models/someone--new/snapshots/master", "hub/models/someone/old___1"):
        (tmp_path / "ms" / place).mkdir(parents=True)
        (tmp_path / "ms" / place / "config.json").write_text(json.dumps(TINY))
    for name in ("someone/new", "someone/old.1"):
        assert resolve(name).origin.startswith("ModelScope cache")
    assert network.asked == []


def test_pytorch_files_have_a_size(network: FakeHub) -> None:
    index = {"metadata": {"total_size": 8 * 2**30}, "weight_map": {"a": "pytorch_model-00001-of-00001.bin"}}
    network.add(NAME, {
        "config.json": TINY, "pytorch_model-00001-of-00001.bin": Sparse(b"PK", 2**33),
        "pytorch_model.bin.index.json": index,
    })  # fmt: skip
    assert "holds 8.00 GiB in PyTorch files" in str(resolve(NAME).note)
    network.has_no_list = True
    network.add("someone/mirrored", network_files(network))
    assert "holds 8.00 GiB in PyTorch files" in str(resolve("someone/mirrored").note)
    assert network.sent_bytes < 10_000


def network_files(network: FakeHub) -> dict[str, Any]:
    return dict(network.repos[NAME].files)


# What is in the way


def forget() -> None:
    """Another process would not know what this one was told."""
    from vramwise.sources import places

    places._answers.clear()
    places._down.clear()


def test_a_server_that_ignores_range_is_left_before_its_body(network: FakeHub) -> None:
    network.ignores_range = True
    network.add(NAME, {"config.json": TINY, "model.safetensors": Sparse(b"", 300_000_000)})
    found = resolve(NAME)  # small enough to be taken whole
    with pytest.raises(SourceError, match="ignores Range and would send the whole file"):
        found.stored_weights()
    assert network.sent_bytes < 20e6  # what lay in the sockets' buffers


def test_a_repository_that_is_not_there(network: FakeHub) -> None:
    line = refused("someone/tny")
    assert "unknown model" in line
    assert "or it is private" in line
    network.asked.clear()
    refused("someone/tny")
    assert network.asked == []  # a batch asks once


def test_a_gated_repository(network: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    network.add(NAME, {"config.json": TINY}, gated=True, tokens=["hf_right"])
    line = refused()
    assert f"gated: ask for access on https://huggingface.co/{NAME}" in line
    assert "HF_TOKEN" in line
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert "this token's account has no access yet" in refused()
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert resolve(NAME).config == TINY


def test_a_wrong_token(network: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    network.add(NAME, {"config.json": TINY})
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert "refuses the token" in refused()


def test_a_rate_limit(network: FakeHub) -> None:
    network.status, network.headers = 429, {"Retry-After": "120"}
    line = refused()
    assert "takes no more requests for now: try again in 120 seconds" in line


@pytest.mark.parametrize(("status", "said"), [(500, "out of order"), (403, "forbids"), (418, "status 418")])
def test_other_answers(network: FakeHub, status: int, said: str) -> None:
    network.status = status
    assert said in refused()


def test_a_connection_that_ends_early_is_tried_once_more(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY})
    network.cuts = 1
    assert resolve(NAME).config == TINY
    network.add("someone/other", {"config.json": TINY})
    network.cuts = 10
    assert "ended the connection twice" in refused("someone/other", source="hub")


@pytest.mark.parametrize("slowness", ["delay_s", "drips_s"])
def test_a_slow_server(network: FakeHub, monkeypatch: pytest.MonkeyPatch, slowness: str) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    network.add(NAME, {"config.json": TINY})
    setattr(network, slowness, 0.05 if slowness == "drips_s" else 1.0)
    assert "did not answer" in refused(source="hub")


def test_nobody_there(network: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    assert "127.0.0.1:9 cannot be reached" in refused()
    monkeypatch.setenv("HF_ENDPOINT", "not an address")
    assert "HF_ENDPOINT is no address" in refused("someone/else")


def test_a_token_does_not_go_along_to_another_host(network: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    network.add(NAME, {"config.json": TINY})
    with FakeHub() as storage:
        storage.repos = network.repos
        network.elsewhere = storage.endpoint.replace("127.0.0.1", "localhost")
        assert resolve(NAME).config == TINY
        assert {one.token for one in network.asked} == {"Bearer hf_secret"}
        assert [one.token for one in storage.asked] == [None]


def test_a_redirect_that_leaves_http(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY})
    network.elsewhere = "file:///etc"
    assert "sends to file:, expected https" in refused()


def test_a_redirect_without_an_end(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY})
    network.status, network.headers = 302, {"Location": "/again"}
    assert "redirects without an end" in refused(source="hub")


HOSTILE_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "config of 20 MB": ({"config.json": Sparse(b"{", 20_000_000)}, "is larger than"),
    "no JSON": ({"config.json": "{"}, "no valid JSON"),
    "a list": ({"config.json": "[]"}, "expected a JSON object"),
    "header of 30 MB": ({"model.safetensors": Sparse((30_000_000).to_bytes(8, "little"), 40_000_000)}, "at most 25 MB"),
    "header that ends": ({"model.safetensors": Sparse((5000).to_bytes(8, "little"), 1000)}, "ends inside its header"),
    "GGUF that is none": ({"a.gguf": "PK"}, "broken"),
    "nothing": ({"README.md": "hello"}, "the repository has no config.json"),
}


@pytest.mark.parametrize(("files", "said"), HOSTILE_FILES.values(), ids=HOSTILE_FILES)
def test_files_that_are_broken(network: FakeHub, files: dict[str, Any], said: str) -> None:
    network.add(NAME, files)
    with pytest.raises(SourceError, match=said) as caught:
        estimate({"model": NAME, "task": "load"})
    assert "\n" not in str(caught.value)


HOSTILE_LISTS = {
    "no JSON": b"<html>", "a list": b"[]", "no commit": b'{"siblings": []}', "commit that climbs":
    json.dumps({"sha": "../../../../etc", "siblings": []}).encode(), "deep": b"[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE_LISTS.values(), ids=HOSTILE_LISTS)
def test_lists_of_files_that_are_broken(network: FakeHub, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    from vramwise.sources.web_reader import Page, WebReader

    monkeypatch.setattr(WebReader, "whole", lambda *_: Page(content, {}, None))
    assert "the list of files" in refused(source="hub")


def test_a_list_cannot_name_files_outside_the_repository(network: FakeHub) -> None:
    network.add(NAME, {"config.json": TINY, "../../../secret.safetensors": "x", "/etc/passwd": "x", "a/./b": "x"})
    found = resolve(NAME)
    assert found.repository is not None
    assert list(found.repository.files()) == ["config.json"]


# The command


def test_the_command_reads_a_hub(hub: FakeHub, vramwise: Any) -> None:
    hub.add(NAME, {"config.json": TINY, "model.safetensors": safetensors(TENSORS)})
    done = vramwise("estimate", NAME, "--task", "load", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["model"]["source"].startswith("Hugging Face Hub (127.0.0.1")
    assert [one.path.partition("?")[0] for one in hub.asked] == [
        f"/api/models/{NAME}/revision/main", f"/{NAME}/resolve/{hub.repos[NAME].commit}/config.json",
        f"/{NAME}/resolve/{hub.repos[NAME].commit}/model.safetensors",
    ]  # fmt: skip
    overview = vramwise("estimate", NAME, "--source", "hub", "--revision", "main")
    assert overview.returncode == 0, overview.stderr
    assert "tiny" in overview.stdout
    offline = vramwise("estimate", NAME, "--offline", "--task", "load", "--json")
    assert json.loads(offline.stdout)["model"]["source"].endswith("kept from before")


def test_the_command_says_in_one_line_what_is_in_the_way(hub: FakeHub, vramwise: Any) -> None:
    hub.add(NAME, {"config.json": TINY}, gated=True)
    done = vramwise("estimate", NAME, "--task", "load", HF_TOKEN="hf_very_secret")
    assert (done.returncode, done.stdout) == (4, "")
    assert len(done.stderr.splitlines()) == 1
    assert "gated" in done.stderr
    assert "hf_very_secret" not in done.stderr
    offline = vramwise("estimate", "someone/else", "--offline")
    assert offline.returncode == 4
    assert "offline: no cache on this machine has someone/else" in offline.stderr


def test_a_batch_asks_for_a_repository_once(hub: FakeHub, vramwise: Any, tmp_path: Path) -> None:
    hub.add(NAME, {"config.json": TINY})
    lines = [{"model": name, "task": "load"} for name in (NAME, "someone/gone", "gpt2") for _ in range(20)]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = vramwise("batch", str(file))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, sum("result" in one for one in answers)) == (0, 40)
    assert len(hub.asked) == 4  # twice this, and on both hubs that


def test_without_the_client_a_sentence_says_what_to_install(hub: FakeHub, vramwise: Any, tmp_path: Path) -> None:
    (tmp_path / "huggingface_hub.py").write_text("raise ImportError('not here')")
    done = vramwise("estimate", NAME, "--task", "load", PYTHONPATH=str(tmp_path))
    assert done.returncode == 4
    assert "pip install 'vramwise[hub]'" in done.stderr
    assert f"https://huggingface.co/{NAME}/resolve/main/config.json" in done.stderr
    assert hub.asked == []
