"""`vramwise compare A B`: terms that add up, the missing one by name, and files that are no results."""

from __future__ import annotations

import json

import pytest

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.measure.two_results import two_results


def result(**settings):
    table = {"precision": "bf16", "sequence_length": 512, **settings}
    return estimate({"model": "llama-3.2-1b", "task": "train", "train": table})


@pytest.fixture
def files(tmp_path):
    for name, one in (("a", result()), ("b", result(method="lora"))):
        (tmp_path / f"{name}.json").write_text(json.dumps(one.to_dict()), "utf-8")
    return str(tmp_path / "a.json"), str(tmp_path / "b.json")


def test_terms_add_up_to_their_moment():
    found = two_results(result(), result(method="lora"))
    for moment in found.moments:
        terms = found.of(moment.path)
        assert sum(term.a for term in terms) == moment.a
        assert sum(term.difference for term in terms) == moment.difference


def test_a_term_that_one_lacks_is_named():
    found = two_results(result(method="lora"), result())
    assert found.explanation == "backward end differs most, and there optimizer states"
    alone = two_results(result(optimizer="none"), result())
    assert alone.explanation.endswith("optimizer states, which A does not have")
    adapters = next(term for term in found.terms if term.path == "load/adapters")
    assert adapters.b == 0 < adapters.a


def test_equal_results_have_nothing_to_explain():
    assert two_results(result(), result()).explanation is None


def test_the_command_prints_both_and_their_difference(files, capsys):
    assert main(["compare", *files, "--json"]) == 0
    terms = json.loads(capsys.readouterr().out)["terms"]
    assert {"path", "a", "b", "difference"} == set(terms[0])
    assert main(["compare", *files]) == 0
    assert "A − B" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[1]", '{"schema": 1}', "[" * 100_000, '{"measured": 3}'])
def test_a_file_that_is_no_result_is_one_line(files, tmp_path, text, capsys):
    (tmp_path / "c.json").write_text(text, "utf-8")
    assert main(["compare", files[0], str(tmp_path / "c.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_flags_of_a_log_do_not_go_with_results(files, capsys):
    assert main(["compare", *files, "--gpu", "h100"]) == 2
    assert "belongs to a log" in capsys.readouterr().err
