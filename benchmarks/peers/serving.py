"""Other tools beside vramwise on start-up logs of vLLM: weights, activation peak, memory outside torch, KV cache.

    python benchmarks/peers/serving.py                     from what was recorded
    python benchmarks/peers/serving.py --record TOOL       with the tool and transformers installed

llm-d-planner's constants were calibrated on runs of vLLM 0.19 which it published, and which are among the cases: these
stand in a row of their own, for they are no test of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "src")]

from serving_tools import TOOLS, Tool  # noqa: E402

from vramwise.accuracy.cases import Case, read_cases  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.estimation import described_model, estimate  # noqa: E402
from vramwise.scenario import Scenario  # noqa: E402
from vramwise.units import GIB  # noqa: E402

RECORDED = HERE / "recorded_serving.jsonl"
COUNTERS = ("weights", "activation_peak", "non_torch", "kv_cache_bytes")
OWN, OTHER = "its own runs", "other logs"


def judged_cases() -> list[tuple[Case, Scenario]]:
    """Start-up logs of vLLM that print one of the counters, of models that are described."""
    found = []
    for path in sorted((HERE.parent / "cases").glob("serving*.jsonl")):
        for case in read_cases(path):
            if not isinstance(case, Case) or not set(COUNTERS) & case.measured.keys():
                continue
            try:
                scenario = Scenario.from_dict(case.scenario)
                described_model(scenario.model)
            except VramwiseError:
                continue
            if scenario.task == "serve" and scenario.settings.engine == "vllm":
                found.append((case, scenario))
    return found


def group_of(case: Case, tool: Tool) -> str:
    return OWN if tool.own and case.id.startswith(tool.own) else OTHER


def recorded() -> dict[tuple[str, str, str], float]:
    """Bytes by tool, case and counter."""
    rows = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]
    return {(row["tool"], row["id"], counter): row[counter] for row in rows for counter in COUNTERS if counter in row}


def record(tool: Tool) -> None:
    """Ask the tool about every case and keep what it says beside what the others said."""
    lines = [line for line in RECORDED.read_text("utf-8").splitlines() if json.loads(line)["tool"] != tool.name]
    for case, scenario in judged_cases():
        try:
            said = tool.ask(scenario)
        except Exception as problem:  # an answer that it does not have
            print(f"{case.id}: {type(problem).__name__}: {str(problem)[:150]}", file=sys.stderr)
            continue
        asked = {counter: round(said[counter]) for counter in said if counter in case.measured}
        if asked:
            lines.append(json.dumps({"tool": tool.name, "version": tool.version, "id": case.id, **asked}))
    RECORDED.write_text("\n".join(sorted(lines)) + "\n", "utf-8")


Place = tuple[str, str, str]
"""A tool, a counter and a group of cases."""


def errors() -> dict[Place, list[tuple[float, float]]]:
    """Errors in GiB, the tool's and ours on the same case, of the cases that both answer."""
    known, found = recorded(), dict[Place, list[tuple[float, float]]]()
    for case, scenario in judged_cases():
        try:
            ours = estimate(scenario).quantities
        except VramwiseError:
            continue
        for tool in TOOLS:
            for counter in tool.counters:
                said = known.get((tool.name, case.id, counter))
                if said is None or counter not in ours:
                    continue
                measured = float(case.measured[counter])
                gaps = (said - measured) / GIB, (ours[counter].expected - measured) / GIB
                found.setdefault((tool.name, counter, group_of(case, tool)), []).append(gaps)
    return found


def lines_of(found: dict[Place, list[tuple[float, float]]]) -> list[str]:
    """The table, a row for each tool, counter and group."""
    lines = [f"{'median |error| (worst), GiB':<47}{'logs':>5}   {'it':<16}vramwise"]
    for tool in TOOLS:
        for counter in tool.counters:
            for group in (OWN, OTHER):
                gaps = found.get((tool.name, counter, group), [])
                if gaps:
                    its, ours = (_cell(one) for one in zip(*gaps, strict=True))
                    lines.append(f"{tool.name:<15}{counter:<18}{group:<14}{len(gaps):>5}   {its:<16}{ours}")
    return [*lines, "", f"{', '.join(tool.version for tool in TOOLS)}: as recorded"]


def _cell(gaps: tuple[float, ...]) -> str:
    worst = f"{max(gaps, key=abs):+.2f}".replace("-", "−")
    return f"{statistics.median(map(abs, gaps)):.2f} ({worst})"


def main() -> None:
    parser = argparse.ArgumentParser(description="other tools beside vramwise on start-up logs of vLLM")
    parser.add_argument(
        "--record", choices=[tool.name for tool in TOOLS], help="ask this one anew, and keep what it says"
    )
    asked = parser.parse_args()
    for tool in TOOLS:
        if tool.name == asked.record:
            record(tool)
    print("\n".join(lines_of(errors())))


if __name__ == "__main__":
    main()
