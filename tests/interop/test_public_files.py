"""Settings of public configuration files, each with its source, become the scenario that its tool would run.

`public_files/KIND.jsonl`: a line a file, `source` (repository@commit:path), its `settings` without its comments and
long texts, what is `expected` of the scenario by that tool's own code and documentation. Lines of a script have
`program` and its options in place of a file's table, those of a container `image`, `command` and `environment`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vramwise.interop.files.given import read_given
from vramwise.interop.files.kinds import kind_of
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import Launch
from vramwise.interop.launch.options import flattened
from vramwise.scenario import Scenario

FOLDER = Path(__file__).with_name("public_files")
MODEL = "meta-llama/Llama-3.1-8B"
TABLES = ("axolotl", "llamafactory", "torchtune", "torchtitan", "litgpt", "llm-foundry", "trl", "nemo-rl",
          "agilerl", "accelerate", "deepspeed", "training-arguments", "llamafactory-v1")  # fmt: skip
WITHOUT_MODEL = ("accelerate", "deepspeed")
NESTED = ("torchtune", "torchtitan", "litgpt", "llm-foundry", "nemo-rl", "agilerl", "llamafactory-v1")


def cases(*kinds: str) -> list[Any]:
    found = []
    for kind in kinds:
        for line in (FOLDER / f"{kind}.jsonl").read_text("utf-8").splitlines():
            case = json.loads(line)
            found.append(pytest.param(kind, case, id=case["source"]))
    return found


def check(launch: Launch, expected: Mapping[str, object]) -> None:
    scenario = launch.scenario
    Scenario.from_dict(scenario)
    found = {**scenario, **scenario[str(scenario["task"])]}
    assert {key: found.get(key) for key in expected} == dict(expected)


@pytest.mark.parametrize(("kind", "case"), cases(*TABLES))
def test_a_public_configuration_becomes_its_scenario(
    kind: str, case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, table in case.get("beside", {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(table), "utf-8")
    file = tmp_path / case.get("name", "run.yaml")
    file.write_text(json.dumps(case["settings"]), "utf-8")
    given = read_given(str(file))
    assert given is not None
    found = kind_of(given)
    assert found is not None
    assert found.name == {"trl": "trainer", "training-arguments": "trainer"}.get(kind, kind)
    launch = read_files([str(file)], MODEL if kind in WITHOUT_MODEL else None)[0].launch
    check(launch, case["expected"])
    if kind not in WITHOUT_MODEL:
        names = dict(flattened(case["settings"])) if kind in NESTED else case["settings"]
        said = {*launch.understood, *launch.passed_over}
        notes = " / ".join(launch.notes)
        stated = [name for name, value in names.items() if value is not None and "${" not in str(value)]
        assert not [name for name in stated if name not in said and name[:79] not in notes]


def line_of(case: Mapping[str, Any]) -> str:
    """The command line of a script, its options as they stand there."""
    words = []
    is_hydra = "verl" in case["program"]
    for name, value in case["settings"].items():
        values = [str(one) for one in value] if isinstance(value, list) else [] if value is True else [str(value)]
        words.append(f"{name}={values[0]}" if is_hydra else " ".join([f"--{name}", *map(quoted, values)]))
    return " \\\n    ".join([case["program"], *words])


def quoted(text: str) -> str:
    return text if text.startswith("$") else shlex.quote(text)


@pytest.mark.parametrize(("kind", "case"), cases("ms-swift", "verl", "openrlhf"))
def test_a_public_script_becomes_its_scenario(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"#!/bin/bash\nset -x\n{line_of(case)} > run.log 2>&1\n", "utf-8")
    launch = read_files([str(file)])[0].launch
    check(launch, case["expected"])
    said = {one.lstrip("-") for one in (*launch.understood, *launch.passed_over)}
    notes = " / ".join(launch.notes)
    silent = [name for name in case["settings"] if name not in said and name[:70] not in notes]
    assert not [name for name in silent if case["settings"][name] not in ("null", "None", "", "[]")]


@pytest.mark.parametrize(("kind", "case"), cases("slurm"))
def test_a_public_batch_job_becomes_its_scenario(
    kind: str, case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(f"base_model: {MODEL}\n", "utf-8")
    asked = "".join(f"#SBATCH --{name}={value}\n" for name, value in case["directives"].items())
    (tmp_path / "job.slurm").write_text(f"#!/bin/bash\n{asked}\nmodule load cuda\n{line_of(case)}\n", "utf-8")
    check(read_files(["job.slurm"])[0].launch, case["expected"])


@pytest.mark.parametrize(("kind", "case"), cases("compose"))
def test_a_public_compose_file_becomes_its_scenarios(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(json.dumps({"services": case["services"]}), "utf-8")
    answers = read_files([str(file)])
    assert len(answers) == len(case["expected"])
    for answer, expected in zip(answers, case["expected"], strict=True):
        check(answer.launch, expected)


@pytest.mark.parametrize(("kind", "case"), cases("kubernetes"))
def test_a_public_container_becomes_its_scenario(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    environment = [{"name": name, "value": value} for name, value in case["environment"].items()]
    container = {"name": "engine", "image": case["image"], "command": case["command"], "args": case["args"],
                 "env": environment}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "llm"}, "spec": {"containers": [container]}}
    file = tmp_path / "pod.yaml"
    file.write_text(f"{json.dumps({'apiVersion': 'v1', 'kind': 'Service'})}\n---\n{json.dumps(pod)}\n", "utf-8")
    (answer,) = read_files([str(file)])
    assert answer.name == "llm"
    check(answer.launch, case["expected"])


@pytest.mark.parametrize(("kind", "case"), cases("helm-values"))
def test_public_values_of_a_chart_become_their_scenario(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(case["settings"]), "utf-8")
    check(read_files([str(file)])[0].launch, case["expected"])


@pytest.mark.parametrize(("kind", "case"), cases("ray-serve"))
def test_a_public_ray_service_becomes_its_scenarios(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    serving = json.dumps({"applications": [{"name": "llms", "args": case["args"]}]})
    service = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "ray-serve-llm"},
               "spec": {"serveConfigV2": serving}}  # fmt: skip
    for name, model in case.get("beside", {}).items():
        (tmp_path / name).write_text(json.dumps(model), "utf-8")
        check(read_files([str(tmp_path / name)])[0].launch, case["expected"][0])
    for name, text in (("service.yaml", json.dumps(service)), ("serve.yaml", serving)):
        file = tmp_path / name
        file.write_text(text, "utf-8")
        answers = read_files([str(file)])
        assert len(answers) == len(case["expected"])
        for answer, expected in zip(answers, case["expected"], strict=True):
            check(answer.launch, expected)
    models = [one for value in case["args"].values() for one in (value if isinstance(value, list) else [value])]
    for answer, given in zip(answers, models, strict=True):
        model = given if isinstance(given, dict) else case["beside"][Path(given).name]
        notes = " / ".join(answer.launch.notes)
        stated = {"--" + key.replace("_", "-") for key in model.get("engine_kwargs", {})} | {*model} - RAYS_OWN
        said = {one.replace("--no-", "--") for one in (*answer.launch.understood, *answer.launch.passed_over)}
        assert not [key for key in stated if key not in said and key not in notes]


RAYS_OWN = {"engine_kwargs", "model_loading_config", "accelerator_type", "runtime_env"}


@pytest.mark.parametrize(("kind", "case"), cases("modelfile"))
def test_a_public_modelfile_becomes_its_scenario(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "Modelfile"
    file.write_text("# mine\n" + "\n".join(case["lines"]) + "\n", "utf-8")
    launch = read_files([str(file)])[0].launch
    check(launch, case["expected"])
    for line in case["lines"]:
        words = line.split()
        if words[0] == "PARAMETER" and words[1] != "num_ctx":
            assert any(words[1] in note for note in launch.notes)


@pytest.mark.parametrize(("kind", "case"), cases("notebook"))
def test_a_public_notebook_becomes_its_scenario(kind: str, case: dict[str, Any], tmp_path: Path) -> None:
    calls = [
        f"{name}({', '.join(f'{key} = {value!r}' for key, value in named.items())})" for name, named in case["calls"]
    ]
    cells = [{"cell_type": "markdown", "source": "# Install"},
             {"cell_type": "code", "source": ["%%capture\n", "!pip install unsloth \\\n", "  trl\n"]},
             {"cell_type": "code", "source": ["raise SystemExit('never run')\n",
                                                  *(f"x = {call}\n" for call in calls)]}]  # fmt: skip
    notebook, script = tmp_path / "finetune.ipynb", tmp_path / "finetune.py"
    notebook.write_text(json.dumps({"cells": cells}), "utf-8")
    script.write_text("\n".join(calls), "utf-8")
    for file in (notebook, script):
        launch = read_files([str(file)])[0].launch
        check(launch, case["expected"])
    said, notes = {*launch.understood, *launch.passed_over}, " / ".join(launch.notes)
    silent = [key for _, named in case["calls"] for key in named if key not in said and key not in notes]
    assert not [key for key in silent if key not in ("token", "trust_remote_code")]
