"""What each name answers: the figures are the commands' own, the shapes are those that a page is drawn from."""

from __future__ import annotations

import base64
import json
import pickle
import struct

import pytest

from vramwise.cli.main import main
from vramwise.estimation import estimate
from vramwise.web.api import answer

SERVING = {"model": "llama-3.1-8b", "task": "serve", "gpu": "4090", "serve": {"max_model_len": 4096}}
TRAINING = {"model": "qwen2.5-0.5b", "task": "train", "gpu": "4090", "train": {"method": "lora", "micro_batch_size": 2}}
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.20 GiB is free. Including non-PyTorch memory, this process has 22.43 GiB memory in use. Of the "
    "allocated memory 21.00 GiB is allocated by PyTorch, and 900.00 MiB is reserved by PyTorch but unallocated.\n"
)
AXOLOTL = "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 2048\nmicro_batch_size: 2\nadapter: lora\n"
TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 10 + i,
         "args": {"Total Reserved": 4096, "Total Allocated": 1024 * i, "Bytes": 1024, "Device Id": 0, "Device Type": 1}}
        for i in range(3)
    ],
}  # fmt: skip


def printed(capsys, *words):
    main(list(words))
    return json.loads(capsys.readouterr().out)


def column(text):
    packed = base64.b64decode(text)
    return list(struct.unpack(f"<{len(packed) // 8}d", packed))


def test_a_plan_is_the_commands(capsys):
    words = ("qwen2.5-0.5b", "--goal", "run", "--gpu", "4060", "--max-model-len", "4096", "--json")
    body = {"scenario": {**SERVING, "model": "qwen2.5-0.5b", "gpu": "4060"}, "goal": "run"}
    assert answer("plan", body) == printed(capsys, "plan", *words)


def test_a_check_is_the_commands(capsys):
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192"
    found = answer("check", {"command": command, "settings": {"gpu": "4090"}})
    assert found == printed(capsys, "check", "--gpu", "4090", "--json", "--", *command.split())
    assert answer("check", {"scenario": SERVING})["word"] in ("fits", "tight")


def test_the_models_that_fit_end_at_the_limit():
    found = answer("fit", {"gpu": "4090", "task": "serve", "family": "qwen2", "params": [1e8, 1e9], "limit": 1})
    assert len(found["rows"]) == 1
    assert found["rows"][0]["verdict"] == "fits"


def test_a_batch_answers_bad_lines_too():
    found = answer("batch", {"lines": [SERVING, {"id": "x", "model": "llama-3.1-8b"}]})["answers"]
    assert found[0]["result"] == answer("result", SERVING)
    assert found[1]["id"] == "x"
    assert found[1]["error"]["type"] == "ScenarioError"


def test_an_export_is_a_command():
    assert answer("export", {"scenario": SERVING, "tool": "vllm"})["text"].startswith("vllm serve ")


def test_the_door_answers_the_three_questions(capsys):
    shown = printed(capsys, "estimate", "qwen2.5-0.5b", "--gpu", "4060", "--json")
    found = answer("door", {"model": "qwen2.5-0.5b", "gpu": "4060"})
    assert {key: shown[key] for key in ("run", "fine_tune", "train")} == {
        key: found[key] for key in ("run", "fine_tune", "train")
    }


def test_a_grid_holds_a_full_estimate_in_every_cell():
    found = answer("grid", {"scenario": TRAINING, "x": {"key": "train.micro_batch_size", "values": [1, 64]},
                            "y": {"key": "sequence_length", "values": [512, 2048]}})  # fmt: skip
    one = {**TRAINING, "train": {**TRAINING["train"], "micro_batch_size": 64, "sequence_length": 2048}}
    assert found["needed_bytes"][1][1] == estimate(one).needed.expected
    assert found["words"] == [["fits", "does not fit"], ["fits", "does not fit"]]


def test_a_grid_says_which_cells_have_no_answer():
    values = {"key": "tensor_parallel_size", "values": [1, 3]}
    found = answer("grid", {"scenario": SERVING, "x": values, "y": {"key": "max_num_seqs", "values": [16]}})
    assert found["needed_bytes"][0][0] is not None
    assert found["needed_bytes"][0][1] is None
    assert found["errors"][0][1]


def test_every_card_has_its_word():
    found = answer("cards", {"scenario": SERVING, "gpus": ["t4", "h100"]})["cards"]
    assert [one["word"] for one in found] == ["does not fit", "fits"]
    usual = answer("cards", {"scenario": {"model": "qwen2.5-0.5b", "task": "load"}})["cards"]
    assert len(usual) >= 12
    assert not [one for one in usual if "error" in one]


@pytest.mark.parametrize("other", [{"method": "full"}, {"method": "lora", "micro_batch_size": 8}])
def test_the_terms_of_a_difference_add_up(other):
    found = answer("difference", {"a": TRAINING, "b": {**TRAINING, "train": other}})
    assert sum(term["difference"] for term in found["terms"]) == found["difference"]
    assert sum(term["a"] for term in found["terms"]) == found["a"]["needed"]["expected"]
    assert sum(term["b"] for term in found["terms"]) == found["b"]["needed"]["expected"]
    assert "train.micro_batch_size" in {one["key"] for one in found["settings"]}


def test_the_nearest_cases_are_of_the_same_program_and_method():
    found = answer("nearest", {"scenario": TRAINING, "limit": 4})["cases"]
    assert {one["engine"] for one in found} == {"transformers"}
    assert {one["scenario"]["train"].get("method") for one in found} == {"lora"}
    assert all(one["compared"] or one["oom"] or one["failure"] for one in found)


def test_cases_are_paged():
    whole = answer("accuracy", {"offset": 0, "limit": 3})
    later = answer("accuracy", {"offset": 2, "limit": 1})
    assert whole["cases"][2]["id"] == later["cases"][0]["id"]
    assert whole["total"] == later["total"] > 1000


def test_a_log_that_tells_of_a_kill_alone_is_answered_too():
    killed = "exitcode  : -9 (pid: 8)\n  traceback : Signal 9 (SIGKILL) received by PID 8\n"
    found = answer("read", {"name": "run.log", "text": killed})
    assert found == {"kind": "oom", "report": answer("oom", {"text": killed})}
    assert found["report"]["failures"][0]["probable"]


def test_a_message_is_read_as_the_oom_command_reads_it(tmp_path, capsys):
    (tmp_path / "run.log").write_text(MESSAGE)
    shown = printed(capsys, "oom", str(tmp_path / "run.log"), "--json")
    assert answer("oom", {"text": MESSAGE}) == shown
    assert answer("read", {"name": "run.log", "text": MESSAGE}) == {"kind": "oom", "report": shown}


def test_a_tools_file_that_names_the_models_class_is_no_config_of_a_model():
    """axolotl's examples say `model_type: LlamaForCausalLM` beside `base_model`."""
    found = answer("read", {"name": "axolotl.yml", "text": f"model_type: LlamaForCausalLM\n{AXOLOTL}"})
    assert found["kind"] == "config"
    assert found["programs"][0]["report"]["model"]["id"] == "meta-llama/Meta-Llama-3-8B"


def test_a_script_that_names_another_file_asks_for_both():
    text = "#!/bin/bash\naccelerate launch --config_file configs/fsdp.yaml train.py --model_name_or_path gpt2\n"
    assert answer("read", {"name": "run.sh", "text": text})["error"]["message"] == (
        "it names a file that is not here: ask vramwise estimate FILE where both lie "
        "(run.sh: configs/fsdp.yaml: No such file or directory)"
    )


def test_a_file_of_the_browsers_own_is_named_too(tmp_path):
    """There a worker hands over a path, and no name beside it."""
    (tmp_path / "nothing.txt").write_text("a shopping list")
    message = answer("read", {"path": str(tmp_path / "nothing.txt")})["error"]["message"]
    assert message.startswith("nothing.txt: nothing known here")


def test_a_command_with_an_unknown_model_says_so():
    message = answer("read", {"name": "p.txt", "text": "vllm serve nobody/Nothing-9B"})["error"]["message"]
    assert "unknown model" in message
    assert "not here" not in message


def test_a_tools_file_is_read_to_its_programs():
    found = answer("read", {"name": "C:\\runs\\axolotl.yml", "text": AXOLOTL, "gpu": "4090"})
    [program] = found["programs"]
    assert found["kind"] == "config"
    assert program["scenario"]["train"]["micro_batch_size"] == 2
    assert program["report"]["verdict"]["word"] == "does not fit"
    assert program["notes"][0].startswith("axolotl.yml is a configuration of axolotl")


def test_a_trace_gives_its_memory_as_columns():
    found = answer("read", {"name": "rank0.pt.trace.json", "text": json.dumps(TRACE)})
    [timeline] = found["timelines"]
    assert found["kind"] == "trace"
    assert column(timeline["time_ns"]) == [10_000, 11_000, 12_000]
    assert column(timeline["allocated"]) == [0, 1024, 2048]
    assert column(timeline["reserved"]) == [4096, 4096, 4096]


def test_a_snapshot_gives_its_history_as_columns():
    event = {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "frames": [], "time_us": 5}
    segment = {"device": 0, "address": 0, "total_size": 2048, "stream": 0, "segment_type": "small", "blocks": [
        {"address": 1, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": []},
        {"address": 513, "size": 1536, "requested_size": 0, "state": "inactive", "frames": []}]}  # fmt: skip
    content = pickle.dumps({"segments": [segment], "device_traces": [[event]], "allocator_settings": {}})
    found = answer("read", {"name": "snapshot.pickle", "base64": base64.b64encode(content).decode()})
    [timeline] = found["timelines"]
    assert found["kind"] == "snapshot"
    assert column(timeline["allocated"]) == [0, 512]


def test_a_config_and_a_scenario_are_told_apart():
    config = '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, ' \
             '"num_attention_heads": 4, "vocab_size": 1000}'  # fmt: skip
    assert answer("read", {"name": "config.json", "text": config})["kind"] == "model"
    found = answer("read", {"name": "job.toml", "text": 'model = "qwen2.5-0.5b"\ntask = "load"\n'})
    assert (found["kind"], found["scenario"]) == ("scenario", {"model": "qwen2.5-0.5b", "task": "load"})


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"name": "x.txt", "text": "hello"}, "x.txt: nothing known here"),
        ({"name": "x", "base64": "***"}, "base64: is none"),
        ({"name": "x"}, "expected one of text, base64 and path"),
        ({"name": "../../etc/passwd\n\x1b[31m", "text": "x"}, "passwd"),
        ({"name": "s.pickle", "base64": base64.b64encode(pickle.dumps(print)).decode()}, "pickle"),
        ({"name": "m.gguf", "base64": base64.b64encode(b"GGUF" + b"\xff" * 40).decode()}, "gguf"),
        ({"name": "t.json.gz", "base64": base64.b64encode(b"\x1f\x8b" + b"x" * 40).decode()}, "t.json.gz"),
    ],
)
def test_a_file_that_is_nothing_is_refused_in_one_line(body, part):
    message = answer("read", body)["error"]["message"]
    assert part in message
    assert message.isprintable()
    assert "/tmp" not in message


def test_the_beginning_of_a_gguf_file_is_enough(gguf_head):
    head, whole = gguf_head, gguf_head + bytes(500_000)
    told = answer("read", {"name": "m.gguf", "base64": base64.b64encode(whole).decode()})
    by_its_head = answer("read", {"name": "m.gguf", "base64": base64.b64encode(head).decode(), "size": len(whole)})
    assert by_its_head["model"] == told["model"]
    assert by_its_head["report"]["quantities"] == told["report"]["quantities"]
    message = answer("read", {"name": "m.gguf", "base64": base64.b64encode(head[:200]).decode(), "size": 10**9})
    assert message["error"]["message"] == "m.gguf: the header is cut off or broken"
