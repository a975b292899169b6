from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import stat
import time

import pytest

from vramwise.cli import batch
from vramwise.cli.line_processes import answered_by
from vramwise.cli.main import main
from vramwise.errors import SourceError, UnsupportedModelError, UsageError, VramwiseError
from vramwise.estimation import estimate as real_estimate
from vramwise.scenario import files

GOOD = {"model": "gpt2", "task": "load"}


class FakeResult:
    def __init__(self, scenario, *, limits=False):
        self.scenario = scenario

    def to_dict(self):
        return {"model": self.scenario.model, "task": self.scenario.task}

    def to_json(self):
        return json.dumps(self.to_dict(), allow_nan=False)


def estimate(scenario, *, limits):
    if scenario.model == "odd":
        raise UnsupportedModelError("family not described yet")
    if scenario.model == "bug":
        raise KeyError("boo")
    return FakeResult(scenario)


def arguments(file, output=None):
    output = None if output is None else str(output)
    return argparse.Namespace(
        file=str(file),
        output=output,
        limits=False,
        jobs=None,
        dask=None,
        shard=None,
        resume=False,
        plan=False,
        rank=None,
    )


def jsonl(path, *rows):
    path.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return path


def run(tmp_path, *rows):
    out = tmp_path / "out.jsonl"
    assert batch.run(arguments(jsonl(tmp_path / "in.jsonl", *rows), out), estimate) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_one_answer_a_line_in_the_order_of_the_lines(tmp_path):
    rows = [{**GOOD, "model": f"m{i}"} for i in range(200)]
    answers = run(tmp_path, *rows)
    assert [answer["result"]["model"] for answer in answers] == [row["model"] for row in rows]
    assert [answer["id"] for answer in answers] == list(range(1, 201))


def test_ids_are_kept_and_a_measured_case_gives_its_scenario(tmp_path):
    case = {"id": "case-1", "scenario": GOOD, "measured": {"weights": 1}, "source": "a log"}
    answers = run(tmp_path, {**GOOD, "id": "mine"}, case, {**GOOD, "id": 7}, {**GOOD, "id": [1]}, {**GOOD, "id": True})
    assert [answer["id"] for answer in answers] == ["mine", "case-1", 7, 4, 5]
    assert all(answer["result"]["task"] == "load" for answer in answers)


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        (b"{", "ScenarioError", "not JSON: Expecting property name enclosed in double quotes (column 2)"),
        (b"[1]", "ScenarioError", "expected a JSON object, got a list"),
        (b"\xff\xfe\x00", "ScenarioError", "not text (UTF-8)"),
        (b'{"model": NaN, "task": "load"}', "ScenarioError", "NaN is not a number to work with"),
        (b"[" * 100_000, "ScenarioError", "nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "ScenarioError", "Exceeds the limit"),
        (b'{"scenario": 3}', "ScenarioError", "expected a table with a model and a task, got 3"),
        (b'{"model": "gpt2"}', "ScenarioError", "task: is missing"),
        (b'{"model": "odd", "task": "load"}', "UnsupportedModelError", "family not described yet"),
        (b'{"model": "bug", "task": "load"}', "InternalError", "KeyError 'boo'"),
    ],
)
def test_a_bad_line_is_answered_and_the_rest_is_done(tmp_path, line, kind, message, capsys):
    first, bad, last = run(tmp_path, GOOD, line, GOOD)
    assert "result" in first
    assert "result" in last
    assert bad["id"] == 2
    assert bad["error"]["type"] == kind
    assert bad["error"]["message"].startswith(message)
    assert "\n" not in bad["error"]["message"]
    assert capsys.readouterr().err == "vramwise: 1 of 3 lines answered with an error: line 2\n"


def test_blank_lines_have_numbers_but_no_answers(tmp_path):
    assert [answer["id"] for answer in run(tmp_path, GOOD, b"", b"  ", GOOD)] == [1, 4]


def test_an_empty_file_gives_an_empty_file(tmp_path):
    assert run(tmp_path) == []


def test_a_byte_order_mark_is_no_error(tmp_path):
    assert "result" in run(tmp_path, b"\xef\xbb\xbf" + json.dumps(GOOD).encode())[0]


def test_many_bad_lines_are_summed_up(tmp_path, capsys):
    run(tmp_path, *[b"x"] * 1500)
    assert "1,500 of 1,500 lines answered with an error: line 1, 2, 3, 4, 5, 6, 7, 8, …" in capsys.readouterr().err


def test_a_line_that_is_too_long_is_passed_over(monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE_BYTES", 100)
    stream = io.BytesIO(b"a\n" + b"x" * 1000 + b"\n" + b"b\n" + b"y" * 1000)
    assert list(files.numbered_lines(stream)) == [(1, b"a\n"), (2, None), (3, b"b\n"), (4, None)]
    with pytest.raises(Exception, match="the line is longer than"):
        files.parse_line(None)


def test_a_result_that_is_no_json_is_an_error_of_its_line(tmp_path):
    class Odd(FakeResult):
        def to_dict(self):
            return {"weights": float("nan")}

    out = tmp_path / "out"
    assert batch.run(arguments(jsonl(tmp_path / "in", GOOD), out), Odd) == 0
    assert json.loads(out.read_text())["error"]["type"] == "InternalError"


def test_stdin_and_stdout(monkeypatch, capsys):
    text = json.dumps(GOOD) + "\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert batch.run(arguments("-"), estimate) == 0
    assert json.loads(capsys.readouterr().out) == {"id": 1, "result": GOOD}


@pytest.mark.parametrize("name", ["gone.jsonl", ".", "zero\0byte"])
def test_an_input_that_cannot_be_read(tmp_path, name):
    with pytest.raises(SourceError):
        batch.run(arguments(f"{tmp_path}/{name}", tmp_path / "out"), estimate)
    assert list(tmp_path.iterdir()) == []


def test_nothing_half_written_is_left(tmp_path):
    def interrupted(scenario, *, limits):
        raise KeyboardInterrupt

    out = tmp_path / "out.jsonl"
    out.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        batch.run(arguments(jsonl(tmp_path / "in", GOOD), out), interrupted)
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.jsonl"]


def test_the_output_has_the_usual_mode_and_a_link_is_followed(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    batch.run(arguments(jsonl(tmp_path / "in", GOOD), link), estimate)
    assert link.is_symlink()
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_an_output_that_cannot_be_written_is_an_os_error(tmp_path):
    source = jsonl(tmp_path / "in", GOOD)
    with pytest.raises(OSError, match="no such folder"):
        batch.run(arguments(source, tmp_path / "no folder" / "out"), estimate)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="No space left"):
        batch.run(arguments(jsonl(tmp_path / "in", GOOD), "/dev/full"), estimate)


def test_a_bar_is_shown_to_a_person_only(tmp_path, monkeypatch, capsys):
    source = jsonl(tmp_path / "in", *[GOOD] * 120)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert batch.run(arguments(source, tmp_path / "out"), estimate) == 0
    assert "100 lines" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert batch.run(arguments(source), estimate) == 0
    assert capsys.readouterr().err == ""


def test_reading_and_writing_leave_time_for_a_thousand_estimates_a_second():
    row = {
        "id": "a",
        "scenario": {
            "model": "meta-llama/Llama-3.1-8B",
            "task": "train",
            "gpu": "H100-80GB",
            "num_gpus": 8,
            "train": {
                "framework": "transformers",
                "method": "lora",
                "precision": "bf16",
                "micro_batch_size": 4,
                "sequence_length": 4096,
                "lora_rank": 16,
                "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
                "checkpointing": "full",
                "attention": "flash",
                "fsdp": "full-shard",
            },
        },
    }
    source = io.BytesIO((json.dumps(row) + "\n").encode() * 1000)
    fastest = float("inf")
    for _ in range(3):
        source.seek(0)
        start = time.process_time()
        assert all(answer.ok for answer in batch.answers(files.numbered_lines(source), estimate))
        fastest = min(fastest, time.process_time() - start)
    assert fastest / 1000 < 0.3e-3


def test_a_line_may_name_another_tools_file(tmp_path):
    file = tmp_path / "ax.yml"
    file.write_text("base_model: gpt2\nmicro_batch_size: 4\nsequence_len: 128\n", "utf-8")
    seen = []

    def kept(scenario, *, limits):
        seen.append(scenario)
        return FakeResult(scenario)

    rows = ({"file": str(file), "gpu": "4090", "train": {"micro_batch_size": 2}}, {"file": str(tmp_path / "no.yml")})
    out = tmp_path / "out.jsonl"
    assert batch.run(arguments(jsonl(tmp_path / "in.jsonl", *rows), out), kept) == 0
    answered, refused = (json.loads(line) for line in out.read_text().splitlines())
    assert answered["result"] == {"model": "gpt2", "task": "train"}
    assert (seen[0].train.micro_batch_size, seen[0].train.sequence_length, seen[0].gpu) == (2, 128, "4090")
    assert any("is a configuration of axolotl" in note for note in seen[0].notes)
    assert "No such file" in refused["error"]["message"]


TRAINING = {
    "model": "qwen2.5-0.5b", "task": "train", "gpu": "4090", "train": {"method": "lora", "sequence_length": 512},
}  # fmt: skip


def test_the_largest_sizes_are_looked_for_only_where_a_line_asks():
    given = [TRAINING, {"id": "case", "scenario": TRAINING, "measured": {"max_seq": 1}}, GOOD]
    numbered = [(number, json.dumps(line).encode()) for number, line in enumerate(given, 1)]

    def quantities(**asked):
        return [json.loads(one.text)["result"]["quantities"] for one in batch.answers(numbered, real_estimate, **asked)]

    plain, case, load = quantities()
    assert {"max_batch", "max_seq"} <= case.keys()
    assert plain == {name: value for name, value in case.items() if name not in batch.LIMITS}
    assert quantities(limits=True) == [case, case, load]


def test_several_processes_give_the_same_lines_in_the_same_order(tmp_path, capsys):
    rows = [{"model": "gpt2", "task": "load", "id": n} if n % 7 else b"{" for n in range(100)]
    source = jsonl(tmp_path / "in.jsonl", *rows)
    outs = []
    for jobs in ("1", "2"):
        outs.append(tmp_path / jobs)
        assert main(["batch", str(source), "--jobs", jobs, "-o", str(outs[-1])]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert main(["batch", str(source), "--jobs", "0"]) == 2
    assert "--jobs: expected a whole number from 1" in capsys.readouterr().err


def test_shares_of_a_file_one_after_the_other_are_the_whole(tmp_path, capsys):
    source = jsonl(tmp_path / "in.jsonl", *({"model": "gpt2", "task": "load", "id": n} for n in range(60)))
    outs = [tmp_path / f"part{part}" for part in range(1, 8)]
    for part, out in enumerate(outs, 1):
        assert main(["batch", str(source), "-o", str(out), "--shard", f"{part}/7"]) == 0
    assert main(["batch", str(source), "-o", str(tmp_path / "whole")]) == 0
    assert b"".join(out.read_bytes() for out in outs) == (tmp_path / "whole").read_bytes()
    assert main(["batch", "-", "--shard", "1/2"]) == 2
    assert "expected a file, whose lines can be counted" in capsys.readouterr().err


def test_a_finished_share_is_kept_until_the_question_changes(tmp_path):
    source, out = jsonl(tmp_path / "in.jsonl", *[GOOD] * 4), tmp_path / "part"
    ask = ["batch", str(source), "-o", str(out), "--shard", "2/2", "--resume"]
    assert main(ask) == 0
    first = out.read_text("utf-8").splitlines(keepends=True)
    out.write_text("kept\n" + first[1], "utf-8")
    assert main(ask) == 0
    assert out.read_text("utf-8").startswith("kept")
    assert main([*ask, "--no-replay"]) == 0
    assert out.read_text("utf-8") == "".join(first)


def test_processes_end_with_whoever_reads_their_answers():
    """Lines are seconds to sleep; what processes call is a function that they can import."""
    answers = answered_by(2, (600 if number == 9 else 0 for number in range(1000)), time.sleep)
    assert [next(answers) for _ in range(8)] == [None] * 8
    mine = multiprocessing.active_children()
    assert len(mine) == 2
    answers.close()  # as a closed pipe does
    assert not any(process.is_alive() for process in mine)


def test_a_process_that_dies_is_one_clear_line():
    with pytest.raises(VramwiseError, match="fewer --jobs"):
        list(answered_by(1, iter([9]), os._exit))


def test_what_was_answered_is_not_asked_again(tmp_path):
    source, out = jsonl(tmp_path / "in.jsonl", *[{**GOOD, "id": n} for n in range(19)]), tmp_path / "out.jsonl"
    asked = []

    def ends_at_5(scenario, *, limits):
        asked.append(scenario)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return FakeResult(scenario)

    args = arguments(source, out)
    args.shard, args.resume, args.replay, args.site, args.no_site = "2/2", True, True, None, True
    with pytest.raises(KeyboardInterrupt):
        batch.run(args, ends_at_5)
    unfinished = tmp_path / "out.jsonl.unfinished"
    unfinished.write_bytes(unfinished.read_bytes() + b'{"id": 4, "resu')  # the process died while it wrote
    args.limits = True
    with pytest.raises(UsageError, match=r"out.jsonl.unfinished answers another question \(--limits differ\)"):
        batch.run(args, ends_at_5)
    args.limits = False
    assert batch.run(args, ends_at_5) == 0
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == list(range(9, 19))
    assert len(asked) == 11
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl", "out.jsonl.of"]
    args.output = None
    with pytest.raises(UsageError, match="and -o OUT"):
        batch.run(args, ends_at_5)


def test_the_input_is_not_replaced_by_its_answers(tmp_path, capsys):
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"model": "gpt2", "task": "load"}\n')
    (tmp_path / "link.jsonl").symlink_to(asked)
    for output in ("asked.jsonl", "link.jsonl"):
        assert main(["batch", str(asked), "-o", str(tmp_path / output)]) == 2
        assert "is the input, whose lines it would replace" in capsys.readouterr().err
    assert asked.read_text() == '{"model": "gpt2", "task": "load"}\n'


def test_two_results_that_are_not_there_are_not_reachable(capsys):
    assert main(["compare", "no-such-a.json", "no-such-b.json"]) == 4
    assert "no-such-a.json: No such file" in capsys.readouterr().err
