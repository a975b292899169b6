"""Write src/vramwise/web/cases.jsonl: the measured cases of benchmarks/cases without quotes and notes.

Run it after cases were added: python tools/build_web_cases.py
"""

from __future__ import annotations

import json
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.scenario import Scenario
from vramwise.web.answers.measured import traits_of

ROOT = Path(__file__).parents[1]
CASES = ROOT / "benchmarks" / "cases"
OUT = ROOT / "src" / "vramwise" / "web" / "cases.jsonl"
KEPT = ("id", "scenario", "measured", "precision_bytes", "precision", "source", "confidence", "specified",
        "engine_version", "rig_floor_bytes", "closed_budget")  # fmt: skip


def lines() -> list[str]:
    """One line a case, in the order of the files."""
    found = []
    for file in sorted(CASES.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            if line.strip():
                case = json.loads(line)
                kept = {key: case[key] for key in KEPT if case.get(key) not in (None, "", {}, [], False)}
                if case.get("extra", {}).get("device") == "cpu":
                    kept["extra"] = {"device": "cpu"}
                kept["traits"] = _traits(case["scenario"])
                found.append(json.dumps(kept, ensure_ascii=False, separators=(",", ":")))
    return found


def _traits(scenario: dict[str, object]) -> dict[str, object] | None:
    try:
        return traits_of(Scenario.from_dict(scenario))
    except VramwiseError:
        return None


if __name__ == "__main__":
    OUT.write_text("\n".join(lines()) + "\n", "utf-8")
