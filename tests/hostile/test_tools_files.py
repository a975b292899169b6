"""Tools' files with anything in them: an answer or one line that says what is wrong; no crash, no run, no long wait."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from vramwise.cli.main import main
from vramwise.errors import VramwiseError
from vramwise.interop.files.launches import read_files
from vramwise.scenario import Scenario

SAMPLES = Path(__file__).parents[1] / "interop" / "public_files"
LLAMA = "meta-llama/Llama-3.1-8B"
TABLES = ("axolotl", "llamafactory", "torchtune", "torchtitan", "litgpt", "llm-foundry", "trl", "nemo-rl", "agilerl",
          "accelerate", "deepspeed", "helm-values")  # fmt: skip
ANYTHING = (None, True, -1, 0, 10**40, 1.5, 1e308, "", "x" * 300, "\x1b]0;title\x07", "${a", "${a.b}", "${mul:1,0}", [],
            [[]], ["a", 1, {}], {}, {"a": {"b": []}}, {"device": 3}, "../../etc/passwd", "-1", "1e400")  # fmt: skip


def first_of(kind):
    return json.loads((SAMPLES / f"{kind}.jsonl").read_text("utf-8").splitlines()[0])


def answered_or_refused(*files, model=None):
    """Read the files; an error is one short line without what would steer a terminal."""
    try:
        answers = read_files(files, model)
        for answer in answers:
            Scenario.from_dict(answer.launch.scenario)
        said = " ".join(note for answer in answers for note in answer.launch.notes)
    except VramwiseError as error:
        said = str(error)
        assert len(said) < 2_000
    assert "\n" not in said
    assert "\x1b" not in said


def changed(table):
    """The table with each of its values, and each within its tables, replaced by anything."""
    for key, value in table.items():
        for other in ANYTHING:
            yield {**table, key: other}
        if isinstance(value, dict):
            for inner in value:
                for other in ANYTHING:
                    yield {**table, key: {**value, inner: other}}


@pytest.mark.parametrize("kind", TABLES)
def test_any_value_in_any_place_of_a_configuration(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.yaml"
    for table in list(changed(first_of(kind)["settings"]))[::30]:
        file.write_text(json.dumps(table), "utf-8")
        answered_or_refused("run.yaml", model=LLAMA if kind in ("accelerate", "deepspeed") else None)


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_that_is_cut_off(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = json.dumps(first_of(kind)["settings"], indent=1)
    for end in range(1, len(text), max(1, len(text) // 10)):
        Path("run.yaml").write_text(text[:end], "utf-8")
        answered_or_refused("run.yaml")


CONTAINERS = (
    {"services": {"a": {"image": "vllm/vllm-openai", "command": ["--model", LLAMA], "environment": {"A": "1"}}}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [
        {"image": "vllm/vllm-openai", "args": ["--model", LLAMA], "env": [{"name": "A", "value": "1"}]}]}},
    {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"entrypoint": f"vllm serve {LLAMA}",
                                                          "serveConfigV2": "a: [", "runtimeEnvYAML": "x"}},
    {"applications": [{"args": {"llm_configs": [{"model_loading_config": {"model_id": "a"}, "engine_kwargs": {}}]}}]},
)  # fmt: skip


def deep_changes(value):
    """The value with anything in each place of it, however deep."""
    yield from ANYTHING
    if isinstance(value, dict):
        for key, inner in value.items():
            for other in deep_changes(inner):
                yield {**value, key: other}
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            for other in deep_changes(inner):
                yield [*value[:place], other, *value[place + 1 :]]


@pytest.mark.parametrize("document", CONTAINERS)
def test_any_value_in_any_place_of_a_compose_file_or_manifest(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in list(deep_changes(document))[::4]:
        Path("run.yaml").write_text(json.dumps(table), "utf-8")
        answered_or_refused("run.yaml")


SCRIPTS = {
    "doubling": "A=xx\n" + "A=$A$A\n" * 60 + "vllm serve $A\n",
    "braces": "${A:-" * 20_000,
    "substitutions": "$(" * 100_000,
    "backquotes": "`" * 100_001,
    "here-documents": "cat <<EOF\n" * 20_000,
    "quotes": "'\"" * 50_000,
    "words": "a " * 300_000,
    "commands": "vllm serve a\n" * 50_000,
    "powers": "run $((9**9**9**9)) $((1/0)) $((" + "(" * 200 + "))",
    "nested shells": "bash -c " * 1_000,
    "continued": "\\\n" * 200_000,
    "control": "vllm serve \x1b]0;t\x07 \x00\n",
    "loops": "if " * 10_000 + "fi " * 10_000 + "\nvllm serve $X",
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_a_script_that_means_harm(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text("#!/bin/bash\n" + SCRIPTS[what], "utf-8")
    started = time.process_time()
    answered_or_refused("run.sh")
    assert time.process_time() - started < 20  # a second on an idle machine


CODE = {
    "deep": "x = " + "(" * 2_000 + "1" + ")" * 2_000,
    "sum": "SFTConfig(a=" + "1+" * 20_000 + "1)",
    "power": "SFTConfig(per_device_train_batch_size=9**9**9)",
    "huge": "x = 1\n" * 150_000,
    "no python": "def (:",
    "zeros": "x = '\\x00'\n\x00",
    "side effects": "open('OWNED', 'w')\nSFTConfig(output_dir=open('OWNED2', 'w'))",
    "values": f"m = AutoModelForCausalLM.from_pretrained({LLAMA!r})\nTrainingArguments(per_device_train_batch_size=[], "
              "optim={}, fsdp=3, deepspeed={'zero_optimization': []}, bf16='maybe')",
}  # fmt: skip


@pytest.mark.parametrize("what", CODE)
@pytest.mark.parametrize("name", ["train.py", "train.ipynb"])
def test_code_is_looked_at_and_never_run(what, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = CODE[what]
    if name.endswith(".ipynb"):
        text = json.dumps({"cells": [{"cell_type": "code", "source": [text]}, 3, {"cell_type": "code"}]})
    Path(name).write_text(text, "utf-8")
    answered_or_refused(name)
    assert not list(tmp_path.glob("OWNED*"))


def test_yaml_that_multiplies_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for level in range(9):
        here, before = chr(98 + level), chr(97 + level)
        bomb += f"{here}: &{here} [{', '.join([f'*{before}'] * 9)}]\n"
    for text in (
        bomb + f"base_model: {LLAMA}\n",
        "[" * 50_000,
        "services: &a {b: *a}\n",
        "!!python/object/apply:os.system [ls]",
    ):
        Path("run.yaml").write_text(text, "utf-8")
        assert main(["estimate", "run.yaml"]) in (1, 2, 4)
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert "internal error" not in said.err
