"""The same questions to VictoriaMetrics; what ended is seen there for one step more."""

from __future__ import annotations

import json
from shutil import which
from urllib.request import Request, urlopen

import pytest
from made_fleet import ASKED, HOSTILE
from real_prometheus import free_port, running

from vramwise.cli.main import main


@pytest.fixture(scope="module")
def address(days, tmp_path_factory):
    found = which("victoria-metrics")
    if found is None:
        pytest.skip("needs victoria-metrics (Debian's package)")
    folder, port = tmp_path_factory.mktemp("victoria"), free_port()
    place = f"http://127.0.0.1:{port}"
    words = [found, f"-storageDataPath={folder}/data", "-retentionPeriod=100y", f"-httpListenAddr=127.0.0.1:{port}"]
    with running(words, folder / "log", f"{place}/health"):
        for file in days:
            lines = (f"{line}000" for line in file.read_text().splitlines() if not line.startswith("#"))  # milliseconds
            request = Request(f"{place}/api/v1/import/prometheus", "\n".join(lines).encode(), method="POST")
            urlopen(request, timeout=300).close()
        urlopen(f"{place}/internal/force_flush", timeout=300).close()
        yield place


def test_what_was_planted_is_found(address, capsys):
    assert main(["fleet", "--prometheus", address, *ASKED, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["missing"] == []
    reasons = {job["id"]: job["reason"] for job in answer["jobs"]}
    assert reasons == {
        "1001": "none", "1002": "idle", "1003": "communication", "1004": "launch-bound", "serving/chat": "memory",
        "research/llama": "none", HOSTILE: "memory",
    }  # fmt: skip
    hours = {job["id"]: job["gpu_hours"] for job in answer["jobs"]}
    assert hours["1001"] == 8 * 168
    assert 8 * 72 <= hours["1004"] <= 8 * 73
