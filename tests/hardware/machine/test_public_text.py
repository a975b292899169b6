"""Other people's machines: matrices and tables from public logs, where a folder of them is on this machine.

They lie beside the checkout or where VRAMWISE_TEST_DATA says, with an expected.json each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vramwise.errors import SourceError
from vramwise.hardware.machine.nccl_tests import read_nccl_test
from vramwise.hardware.machine.reports import read_collect_env, read_ds_report
from vramwise.hardware.machine.topology import explained, read_topology

DATA = Path(os.environ.get("VRAMWISE_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
pytestmark = pytest.mark.skipif(not (DATA / "topo").is_dir(), reason="the public samples are not on this machine")


def cases(folder: str) -> list[dict]:
    path = DATA / folder / "expected.json"
    return json.loads(path.read_text()) if path.is_file() else []


@pytest.mark.parametrize("case", cases("topo"), ids=lambda case: case["file"])
def test_matrices(case):
    text = (DATA / "topo" / case["file"]).read_text()
    if case["mangled"]:
        with pytest.raises(SourceError, match="mangled matrix"):
            read_topology(text)
        return
    matrix = read_topology(text)
    assert list(matrix.devices) == case["devices"]
    assert [list(row) for row in matrix.matrix] == case["matrix"]
    assert explained(matrix)


@pytest.mark.parametrize("case", cases("nccl"), ids=lambda case: case["file"])
def test_bandwidth_tables(case):
    test = read_nccl_test((DATA / "nccl" / case["file"]).read_text())
    assert (test.collective, test.ranks, test.avg_busbw) == (case["collective"], case["ranks"], case["avg_busbw"])
    for row, expected in zip(test.rows, case["rows"], strict=True):
        assert {name: getattr(row, name) for name in expected} == expected
    assert test.notes == ()


def test_environment_reports():
    for path in (DATA / "env").glob("*.txt"):
        if path.name.startswith("ds_report"):
            report = read_ds_report(path.read_text())
            assert (report.torch_cuda, report.nvcc, len(report.ops)) == ("12.9", "12.9", 22)
            assert report.ops["sparse_attn"] == (False, False)
        else:
            assert read_collect_env(path.read_text()).torch_version == "2.13.0+cpu"
