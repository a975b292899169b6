"""`vramwise batch` on files that are empty, huge, or half broken: bad lines are named, the rest is done."""

from __future__ import annotations

import json

from vramwise.units import MIB

GOOD = {"model": "gpt2", "task": "load"}
GOOD_LINE = json.dumps(GOOD).encode()


def answers(outcome):
    assert outcome.code == 0
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_an_empty_file_has_no_answers(program):
    (program.folder / "in.jsonl").write_bytes(b"")
    assert program("batch", "in.jsonl") == (0, "", "")


def test_bad_lines_are_reported_by_number_and_the_rest_is_done(program):
    lines = [
        GOOD_LINE,
        b"{",
        b"\xff\xfe\0",
        GOOD_LINE[:-1],
        b'{"model": "gpt2", "task": "load", "num_gpus": NaN}',
        b'{"model": "nobody/knows-this", "task": "load"}',
        b'{"model": "gpt2", "task": "load", "gpu": "4900"}',
        b'{"model": {"model_type": "llama", "hidden_size": -1}, "task": "load"}',
        b'{"model": {"model_type": "no-such-type"}, "task": "load"}',
        b"[" * 100_000,
        b"",
        b"null",
        b'{"model": "gpt2", "task": "load", "num_gpus": ' + b"1" * 31 + b"}",
        GOOD_LINE,
    ]
    (program.folder / "in.jsonl").write_bytes(b"\n".join(lines))
    done = program("batch", "in.jsonl")
    found = answers(done)
    assert [answer["id"] for answer in found] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14]
    assert [answer["id"] for answer in found if "result" in answer] == [1, 14]
    errors = {answer["id"]: answer["error"] for answer in found if "error" in answer}
    assert all("\n" not in error["message"] for error in errors.values())
    assert all(error["type"] != "InternalError" for error in errors.values())
    assert errors[6]["type"] == "SourceError"
    assert errors[7]["message"].startswith('unknown GPU "4900": did you mean rtx-4090')
    assert errors[9]["type"] == "UndescribedTypeError"
    assert done.only_line() == "11 of 13 lines answered with an error: line 2, 3, 4, 5, 6, 7, 8, 9, …"


def test_a_huge_file_is_worked_through_line_by_line(program):
    with (program.folder / "in.jsonl").open("wb") as file:
        file.write(GOOD_LINE + b"\n")
        for _ in range(100):
            file.write(b"x" * MIB)
        file.write(b"\n" + GOOD_LINE + b"\n")
    done = program("batch", "in.jsonl")
    first, long, last = answers(done)
    assert "result" in first
    assert "result" in last
    assert long == {"id": 2, "error": {"type": "ScenarioError", "message": "the line is longer than 16 MiB"}}
    assert done.only_line() == "1 of 3 lines answered with an error: line 2"


def test_many_lines_use_little_memory(program):
    lines = b"".join(json.dumps({**GOOD, "num_gpus": 1 + n % 8}).encode() + b"\n" for n in range(2000))
    done = program("batch", "-", "-o", "out.jsonl", stdin=lines)
    assert done == (0, "", "")
    assert len((program.folder / "out.jsonl").read_bytes().splitlines()) == 2000


def test_an_input_that_cannot_be_read(program):
    (program.folder / "folder").mkdir()
    assert program("batch", "gone.jsonl", "-o", "out").complaint(4) == "gone.jsonl: No such file or directory"
    assert program("batch", "folder", "-o", "out").complaint(4) == "folder: Is a directory"
    assert not (program.folder / "out").exists()


def test_measured_cases_that_are_broken_are_named(program):
    case = {"id": "a", "scenario": GOOD, "measured": {"weights": 1}, "source": "a log"}
    lines = [json.dumps(case).encode(), b"{", b"\xff", b'{"id": "b"}']
    (program.folder / "cases.jsonl").write_bytes(b"\n".join(lines))
    done = program("accuracy", "cases.jsonl")
    assert done.code == 0
    assert "Traceback" not in done.out + done.err
    assert "2" in done.out + done.err
