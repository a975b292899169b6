from __future__ import annotations

import json

import pytest

from vramwise.errors import ScenarioError, SourceError
from vramwise.scenario import Scenario, files, read_scenario_file

TOML = """
model = "gpt2"
task = "train"
gpu = "4090"
[train]
method = "lora"
micro_batch_size = 2
lora_targets = ["c_attn"]
"""
YAML = """
model: gpt2
task: train
gpu: "4090"
train:
  method: lora
  micro_batch_size: 2
  lora_targets: [c_attn]
"""
DATA = {
    "model": "gpt2",
    "task": "train",
    "gpu": "4090",
    "train": {"method": "lora", "micro_batch_size": 2, "lora_targets": ["c_attn"]},
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", TOML),
        ("s.yaml", YAML),
        ("s.YML", YAML),
        ("s.json", json.dumps(DATA)),
        ("bom.json", "\ufeff" + json.dumps(DATA)),
    ],
)
def test_three_formats_say_the_same(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    assert read_scenario_file(path) == Scenario.from_dict(DATA)


def yaml_bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.json", b"", "the file is empty"),
        ("s.toml", b"  \n", "the file is empty"),
        ("s.json", b'{"model": "gpt2", "ta', "not JSON: "),
        ("s.json", b'{"model": NaN, "task": "load"}', "NaN is not a number to work with"),
        ("s.yaml", b"model: .nan\ntask: load", "NaN is not a number to work with"),
        ("s.toml", b"model = nan\ntask = 'load'", "NaN is not a number to work with"),
        ("s.json", b"[" * 100_000, "nested too deeply"),
        ("s.json", b"[" * 500 + b"]" * 500, "nested too deeply"),
        ("s.yaml", b"[" * 500 + b"]" * 500, "nested too deeply"),
        ("s.yaml", b"[" * 5000, "nested too deeply"),
        ("s.yaml", b"[" * 40_000 + b"]" * 40_000, "nested too deeply"),
        ("s.yaml", b"- " * 40_000, "nested too deeply"),
        ("s.yaml", b"- a\n" * 1_000_000, "more than 200,000 values"),
        ("s.toml", b"a." * 200_000 + b"a = 1", "nested too deeply"),
        ("s.toml", b"x = {" + b"a . " * 200_000 + b"a = 1}", "nested too deeply"),
        ("s.json", b'{"model": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
        ("s.yaml", yaml_bomb().encode(), "more than 200,000 values"),
        ("s.toml", b"model = ", "not TOML: "),
        ("s.yaml", b"model: [", "not YAML: "),
        ("s.yaml", b"!!python/object/apply:os.system ['true']", "not YAML: "),
        ("s.json", b"\x89PNG\r\n\x1a\n\xff\xfe", "not a text file (UTF-8)"),
        ("s.json", b"\0\0\0\0", "it holds zero bytes"),
        ("s.txt", b"model", "expected a file that ends in .toml, .yaml, .yml, .json"),
    ],
)
def test_a_broken_file_gives_one_clear_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        read_scenario_file(path)
    text = str(caught.value)
    assert message in text
    assert text.startswith(str(path))
    assert "\n" not in text
    assert len(text) < len(str(path)) + 200


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "s.json"
    path.write_bytes(b" " * 2000)
    monkeypatch.setattr(files, "LARGEST_FILE_BYTES", 1000)
    with pytest.raises(SourceError, match="larger than"):
        read_scenario_file(path)


def test_a_missing_file_or_a_folder_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"gone\.json: No such file or directory"):
        read_scenario_file(tmp_path / "gone.json")
    folder = tmp_path / "folder.json"
    folder.mkdir()
    with pytest.raises(SourceError, match="Is a directory"):
        read_scenario_file(folder)
    with pytest.raises(SourceError, match="is no file name"):
        read_scenario_file("zero\0byte.json")


def test_a_list_is_no_scenario(tmp_path):
    path = tmp_path / "s.json"
    path.write_text("[1, 2]")
    with pytest.raises(ScenarioError, match="expected a table with a model and a task"):
        read_scenario_file(path)
