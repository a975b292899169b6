"""A cluster of many jobs: what is the same for all of them is worked out once, not once a job."""

from __future__ import annotations

import json

from test_faults import ENGINE, Stand, fleet

from vramwise.fleet.questions import Asker
from vramwise.hardware import lookup

JOBS = 3_000


class ManyJobs(Stand):
    """Answers for JOBS jobs where the other stand has one."""

    def answer(self, path, asked):
        status, text = super().answer(path, asked)
        if "query" not in asked:
            return status, text
        ((_, value),) = [one["value"] for one in json.loads(text)["data"]["result"]]
        found = [
            {"metric": {"hpc_job": str(job), "modelName": "NVIDIA H100 80GB HBM3"}, "value": [0, value]}
            for job in range(JOBS)
        ]
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}})


def counted(monkeypatch, owner, name):
    calls, real = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *words: calls.append(words) or real(*words))
    return calls


def test_a_card_is_looked_up_once_and_questions_are_written_once(monkeypatch, capsys):
    looked_up = counted(monkeypatch, lookup, "find_installed_gpu")
    written = counted(monkeypatch, Asker, "peaks")
    stand = ManyJobs(names=(ENGINE, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"))
    answer = fleet(stand, capsys)
    assert len(answer["jobs"]) == JOBS
    assert {job["gpu"] for job in answer["jobs"]} == {"h100-sxm-80gb"}
    assert len(looked_up) <= 2
    assert len(written) <= 2 * len(stand.asked)
