"""Several programs on one card: their processes add up, each starts on what is left, sleepers take turns."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main
from vramwise.errors import ScenarioError, UsageError
from vramwise.estimation import estimate
from vramwise.planner.together import together
from vramwise.scenario import Scenario
from vramwise.units import GIB

CARD = "h100-sxm-80gb"


def serve(share=None, **more):
    settings = {"max_model_len": 8192, **({} if share is None else {"gpu_memory_utilization": share}), **more}
    return Scenario.from_dict({"model": "llama-3.1-8b", "task": "serve", "gpu": CARD, "serve": settings})


def train(**more):
    settings = {"method": "lora", "checkpointing": "full", **more}
    return Scenario.from_dict({"model": "qwen2.5-1.5b", "task": "train", "train": settings})


def answer(*scenarios):
    return together([(f"program {i}", scenario) for i, scenario in enumerate(scenarios)], estimate)


def test_processes_add_up_each_with_its_own_context():
    found = answer(serve(0.4), train())
    alone = [estimate(serve(0.4)), estimate(train().replace(gpu=CARD))]
    sizes = [int(part.process.expected) for part in found.parts]
    assert sizes == [int(result.quantities["nvidia_smi"].expected) for result in alone]
    assert found.worst.total.expected == sum(sizes)
    contexts = [
        child
        for part in found.parts
        for child in part.result.phases[-1].components.children
        if child.name == "CUDA context"
    ]
    assert len(contexts) == 2
    assert all(context.bytes > 0.2 * GIB for context in contexts)
    assert found.verdict.word == "fits"


def test_each_starts_on_what_those_before_it_left():
    found = answer(serve(0.4), serve(0.4))
    card = found.capacity.usable_bytes
    assert found.parts[1].free_bytes == card - int(found.parts[0].process.expected)
    assert found.verdict.word == "fits"


def test_a_second_engine_with_the_default_share_does_not_start():
    found = answer(serve(), serve())
    assert found.verdict.word == "does not fit"
    assert [part.starts for part in found.parts] == [True, False]
    assert any("program 1: vLLM refuses to start" in reason for reason in found.verdict.reasons)


def test_the_reason_names_a_share_that_starts():
    found = answer(serve(0.5), serve(0.6))
    said = next(reason for reason in found.verdict.reasons if "set gpu_memory_utilization to" in reason)
    share = float(said.rpartition(" ")[2])
    assert answer(serve(0.5), serve(share)).verdict.fits


def test_engines_that_sleep_take_turns():
    found = answer(serve(0.8, sleep_level=1), serve(0.8, sleep_level=2))
    first, second = found.parts
    assert found.verdict.fits
    assert {moment.name for moment in found.moments} == {"program 0 awake", "program 1 awake", "all asleep that can"}
    assert found.worst.total.expected == max(
        int(first.process.expected + second.asleep.expected), int(second.process.expected + first.asleep.expected)
    )
    assert 0.5 * GIB < first.asleep.expected < 3 * GIB
    hosts = [int(part.result.quantities["host_memory"].expected) for part in found.parts]
    assert hosts == [int(first.result.quantities["weights"].expected), 0]
    # awake at once they would not fit
    assert not answer(serve(0.8), serve(0.8)).verdict.fits


def test_one_that_does_not_sleep_is_always_there():
    found = answer(train(), serve(0.8, sleep_level=1))
    assert found.worst.name == "program 1 awake"
    assert found.worst.total.expected == sum(int(part.process.expected) for part in found.parts)


def test_what_is_free_and_reserved_bounds_all_of_them():
    crowded = answer(serve(0.4).replace(gpu_free_bytes=36 * GIB), train())
    assert crowded.verdict.word == "does not fit"
    assert crowded.verdict.headroom_bytes == 36 * GIB - crowded.worst.total.expected
    assert "are held by others" in crowded.verdict.reasons[0]
    assert answer(serve(0.4).replace(reserve_bytes="50%"), train()).verdict.word == "does not fit"


def test_what_is_refused():
    with pytest.raises(UsageError, match="one program alone"):
        answer(serve())
    with pytest.raises(UsageError, match="which card"):
        answer(train(), train())
    with pytest.raises(ScenarioError, match="on h100-sxm-80gb and on a100-sxm-80gb: together they are on one card"):
        answer(serve(), train().replace(gpu="a100-sxm-80gb"))


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(
        f'model = "llama-3.1-8b"\ntask = "serve"\ngpu = "{CARD}"\n[serve]\nmax_model_len = 8192\n'
        "gpu_memory_utilization = 0.4\n"
    )
    second.write_text('model = "qwen2.5-1.5b"\ntask = "train"\n[train]\nmethod = "lora"\ncheckpointing = "full"\n')
    return str(first), str(second)


def test_two_files(files, capsys):
    assert main(["estimate", *files, "--together"]) == 0
    screen = capsys.readouterr().out
    assert screen.startswith("2 programs on one H100 SXM5 80GB")
    assert "a.toml" in screen
    assert max(map(len, screen.splitlines())) <= 100
    assert main(["estimate", files[0], "--together", files[1], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["together"]
    assert [part["name"] for part in found["parts"]] == ["a.toml", "b.toml"]
    assert found["total_needed"]["expected"] == sum(part["process"]["expected"] for part in found["parts"])
    assert found["verdict"]["word"] == "fits"
    assert found["moment"] == "all at once"


def test_command_lines_with_two_dashes_between_them(files, capsys):
    served = ["vllm", "serve", "Qwen/Qwen2.5-0.5B", "--gpu-memory-utilization", "0.2", "--enable-sleep-mode"]
    assert main(["estimate", files[0], "--together", "--json", "--", *served, "--", *served]) == 0
    found = json.loads(capsys.readouterr().out)["together"]
    assert [part["name"] for part in found["parts"]] == ["a.toml", "vllm 1", "vllm 2"]
    assert found["parts"][1]["asleep"]["expected"] < found["parts"][1]["process"]["expected"]


def test_a_script_of_several_programs(tmp_path, capsys):
    script = tmp_path / "both.sh"
    script.write_text(
        "#!/bin/bash\nvllm serve Qwen/Qwen2.5-0.5B --gpu-memory-utilization 0.5 &\n"
        "vllm serve Qwen/Qwen2.5-1.5B --gpu-memory-utilization 0.6 --port 8001\n"
    )
    assert main(["estimate", str(script), "--together", "--gpu", CARD, "--json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["together"]["parts"]) == 2


@pytest.mark.parametrize("words", [["nofile.toml"], ["--", "vllm", "serve", "Qwen/Qwen2.5-0.5B"], []])
def test_what_the_command_refuses(words, capsys):
    assert main(["estimate", "--together", "--gpu", CARD, *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_share_that_is_too_small_takes_no_more_than_its_process():
    """A card's size for a share of it is nothing that anybody takes: the next program starts on what is left."""
    found = answer(serve(0.1), serve(0.4))
    first, second = found.parts
    assert (first.starts, second.starts) == (False, True)
    assert first.process.expected < 0.3 * found.capacity.usable_bytes < first.result.needed.expected
    assert found.verdict.word == "does not fit"
