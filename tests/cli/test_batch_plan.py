"""`vramwise batch --plan`: many models over many clusters, each line as `vramwise plan --json` answers it."""

from __future__ import annotations

import json

import pytest

from vramwise.cli import batch
from vramwise.cli.main import main
from vramwise.planner import option

TRAIN = {"method": "lora", "framework": "transformers", "sequence_length": 1024}
LINES = [
    {"id": f"{model} on {count} {gpu}", "model": model, "task": "train", "gpu": gpu, "num_gpus": count, "train": TRAIN}
    for model in ("gpt2", "qwen2.5-0.5b")
    for gpu, count in (("rtx-4090", 1), ("l4", 2))
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES), "utf-8")
    return path


@pytest.fixture(autouse=True)
def no_site(monkeypatch):
    monkeypatch.setenv("VRAMWISE_SITE", "")


def answered(path, out, *flags):
    assert main(["batch", str(path), "-o", str(out), "--plan", *flags]) == 0
    return out.read_bytes()


def test_each_line_is_what_the_command_prints(file, tmp_path, capsys):
    rows = [json.loads(line) for line in answered(file, tmp_path / "out.jsonl").splitlines()]
    assert [row["id"] for row in rows] == [line["id"] for line in LINES]
    for line, row in zip(LINES, rows, strict=True):
        scenario = tmp_path / "one.json"
        scenario.write_text(json.dumps({key: value for key, value in line.items() if key != "id"}), "utf-8")
        capsys.readouterr()
        main(["plan", "--scenario", str(scenario), "--json"])
        assert row["plan"] == json.loads(capsys.readouterr().out)


def test_processes_and_shards_plan_the_same(file, tmp_path):
    whole = answered(file, tmp_path / "whole", "--rank", "memory")
    assert answered(file, tmp_path / "processes", "--rank", "memory", "--jobs", "2") == whole
    parts = [answered(file, tmp_path / f"{part}", "--rank", "memory", "--shard", f"{part}/3") for part in (1, 2, 3)]
    assert b"".join(parts) == whole
    assert answered(file, tmp_path / "other", "--rank", "time") != whole


def test_an_inventory_of_a_line_and_lines_that_cannot_be_planned(tmp_path):
    inventory = tmp_path / "gpus.toml"
    inventory.write_text('[[gpu]]\nid = "l4"\ncount = 4\nprice_per_hour = 0.8\n', "utf-8")
    train = {"model": "gpt2", "task": "train", "train": TRAIN}
    rows = [train | {"inventory": str(inventory)}, {"model": "gpt2", "task": "load"}, train | {"inventory": 5},
            train | {"inventory": str(tmp_path / "none.toml")}]  # fmt: skip
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    first, *others = (json.loads(line) for line in answered(path, tmp_path / "out").splitlines())
    assert first["plan"]["options"][0]["scenario"]["gpu"] == "l4"
    assert first["plan"]["options"][0]["cost_per_hour"] == pytest.approx(0.8)
    assert [other["error"]["type"] for other in others] == ["UsageError", "UsageError", "SourceError"]
    assert "needs the task serve or train, got load" in others[0]["error"]["message"]


@pytest.mark.parametrize("flags", [("--rank", "money"), ("--plan", "--rank", "speed")])
def test_flags_that_do_not_go_together(file, flags, capsys):
    assert main(["batch", str(file), *flags]) == 2
    assert capsys.readouterr().err.startswith("vramwise: --rank: ")


def test_the_ranks_are_those_of_plan():
    assert batch.RANKS == option.RANKS
