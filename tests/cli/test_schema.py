from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from vramwise.cli.main import main
from vramwise.result import Capacity, ModelFacts, Node, Phase, Quantity, Rank, Result, Verdict


def printed(capsys, *arguments):
    assert main(["schema", *arguments]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    return schema


@pytest.mark.parametrize("what", ["scenario", "result", "case"])
def test_each_schema_is_printed(what, capsys):
    assert what in printed(capsys, what)["title"]


def test_scenario_is_what_it_prints_by_itself(capsys):
    assert printed(capsys) == printed(capsys, "scenario")


def test_an_unknown_schema_gets_its_neighbours(capsys):
    assert main(["schema", "results"]) == 2
    assert capsys.readouterr().err == 'vramwise: unknown schema "results": did you mean result?\n'
    assert main(["schema", "zzz"]) == 2
    assert "did you mean scenario, result, case?" in capsys.readouterr().err


@pytest.mark.parametrize("whole", [True, False])
def test_a_result_is_valid(whole, capsys):
    leaf = Node("weights", 4, "exact", inputs={"n": 2})
    result = Result(
        scenario={"model": "m", "task": "load"},
        model=ModelFacts("m", 2, 2, 0, "catalog"),
        quantities={
            "weights": Quantity.exact(4),
            "max_concurrency": Quantity(1.5, 2.0, 2.5),
            "oom": Quantity.exact(False),
        },
        phases=(Phase("load", Node.group("all", [leaf])),) if whole else (),
        peak_phase="load" if whole else None,
        ranks=(Rank("rank 0", 4),),
        capacity=Capacity("t4", 10, 9) if whole else None,
        verdict=Verdict("tight", 5, 0.9) if whole else None,
    ).to_dict()
    validator = Draft202012Validator(printed(capsys, "result"))
    validator.validate(result)
    assert not validator.is_valid({**result, "more": 1})
    assert not validator.is_valid({**result, "quantities": {"weights": {"expected": 4}}})
    assert not validator.is_valid({key: value for key, value in result.items() if key != "notes"})
