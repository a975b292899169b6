"""Other tools beside vramwise on the same measured training cases.

    python benchmarks/peers/compare.py                       the table, from what is installed and what was recorded
    python benchmarks/peers/compare.py --record --eleutherai PATH/calc_transformer_mem.py --simumax CHECKOUT

A tool that is installed is run; of one that is not, the answers in recorded.jsonl are taken, with the version that gave
them. error = (estimate − measured) / measured, of the first counter that a case has: allocated, reserved, process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "src"))
sys.path.insert(0, str(HERE))

from adapters import (  # noqa: E402
    Answer,
    Question,
    accelerate_training,
    bytes_a_parameter,
    deepspeed_states,
    eleutherai,
    llm_analysis,
    simumax,
)

from vramwise.accuracy.cases import Case, read_cases  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.estimation import described_model, estimate  # noqa: E402
from vramwise.scenario import Scenario  # noqa: E402

CASES = HERE.parent / "cases" / "training.jsonl"
RECORDED = HERE / "recorded.jsonl"
COUNTERS = ("peak_allocated", "peak_reserved", "nvidia_smi")
PACKAGES = {"accelerate": "accelerate", "DeepSpeed": "deepspeed", "llm-analysis": "llm_analysis"}
VERSIONS = {"accelerate": "accelerate 1.15.0", "DeepSpeed": "deepspeed 0.19.8", "llm-analysis": "llm-analysis 0.2.2",
            "EleutherAI": "EleutherAI/cookbook 827ee3b (2026-03-15)",
            "SimuMax": "SimuMax 4dcaae5 (2026-05-11)"}  # fmt: skip
RULES = {"16 bytes a parameter": bytes_a_parameter(16), "20 bytes a parameter": bytes_a_parameter(20)}
GROUPS = ("full, no checkpointing", "full, checkpointing", "LoRA", "QLoRA")


def judged_cases() -> list[tuple[Case, Question]]:
    """Cases that state everything and whose model is described."""
    found = []
    for case in read_cases(CASES):
        if not isinstance(case, Case) or case.specified != "full" or not set(COUNTERS) & case.measured.keys():
            continue
        scenario = Scenario.from_dict(case.scenario)
        try:
            source, model = described_model(scenario.model)
        except VramwiseError:
            continue
        found.append((case, Question(scenario, model, source.config)))
    return found


def measured(case: Case) -> tuple[str, float]:
    """The counter and what it showed."""
    name = next(counter for counter in COUNTERS if counter in case.measured)
    return name, float(case.measured[name])


def group_of(case: Case, question: Question) -> str:
    method = question.train.method
    if method in ("lora", "qlora"):
        return "LoRA" if method == "lora" else "QLoRA"
    return GROUPS[0] if question.train.checkpointing == "none" else GROUPS[1]


def recorded() -> dict[tuple[str, str], Answer]:
    """Answers of earlier runs by tool and case; None where the tool failed."""
    if not RECORDED.exists():
        return {}
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    return {(row["tool"], row["id"]): row["bytes"] for row in rows}


def tools(script: Path | None, checkout: Path | None = None) -> dict[str, Callable[[Question], Answer]]:
    """What can be run here."""
    asks: dict[str, Callable[[Question], Answer]] = {
        "accelerate": accelerate_training, "DeepSpeed": deepspeed_states, "llm-analysis": llm_analysis,
    }  # fmt: skip
    found = {name: ask for name, ask in asks.items() if importlib.util.find_spec(PACKAGES[name])}
    found |= {"EleutherAI": eleutherai(script)} if script else {}
    return found | ({"SimuMax": simumax(checkout)} if checkout else {})


def ask_safely(ask: Callable[[Question], Answer], question: Question) -> Answer:
    """An answer, or None where the tool ends in an error (an answer that it does not have)."""
    try:
        return ask(question)
    except Exception:
        return None


def answers(running: Mapping[str, Callable[[Question], Answer]]) -> dict[str, dict[str, Answer]]:
    """Tool -> case -> bytes, of what is `running` anew."""
    pairs, kept = judged_cases(), recorded()
    table: dict[str, dict[str, Answer]] = {"vramwise": {}}
    for case, question in pairs:
        counter, _ = measured(case)
        table["vramwise"][case.id] = estimate(question.scenario).quantities[counter].expected
    for name in VERSIONS:
        if name in running:
            table[name] = {case.id: ask_safely(running[name], question) for case, question in pairs}
        else:
            table[name] = {case.id: kept[name, case.id] for case, _ in pairs if (name, case.id) in kept}
    for name, rule in RULES.items():
        table[name] = {case.id: rule(question) for case, question in pairs}
    return table


def rows_of(table: dict[str, dict[str, Answer]]) -> Iterable[list[str]]:
    """The lines of the table: tool, then answered / asked, median and worst error of each group."""
    pairs = judged_cases()
    sizes = {group: sum(group_of(*pair) == group for pair in pairs) for group in GROUPS}
    yield ["median |error| (worst), %", *(f"{group} ({count})" for group, count in sizes.items())]
    for name, found in table.items():
        row = [name]
        for group in GROUPS:
            errors = [
                100 * (size / measured(case)[1] - 1)
                for case, question in pairs
                if group_of(case, question) == group and (size := found.get(case.id)) is not None
            ]
            row.append(_summary(errors, sizes[group]))
        yield row


def lines_of(table: dict[str, dict[str, Answer]]) -> list[str]:
    """The table as it is printed."""
    rows = list(rows_of(table))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _summary(errors: list[float], asked: int) -> str:
    if not errors:
        return "no answer"
    worst = max(errors, key=abs)
    short = "" if len(errors) == asked else f" [{len(errors)}]"
    return f"{statistics.median(map(abs, errors)):.1f} ({worst:+.0f}){short}".replace("-", "−")


def record(table: dict[str, dict[str, Answer]], running: Iterable[str]) -> None:
    kept = recorded()
    for name in running:
        kept |= {(name, case): size for case, size in table[name].items()}
    lines = [
        json.dumps({"tool": name, "version": VERSIONS[name], "id": case, "bytes": size and round(size)})
        for (name, case), size in sorted(kept.items())
    ]
    RECORDED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="other tools beside vramwise on the same measured training cases")
    parser.add_argument("--record", action="store_true", help="write the answers of what runs here to recorded.jsonl")
    parser.add_argument("--eleutherai", type=Path, metavar="FILE", help="EleutherAI/cookbook's calc_transformer_mem.py")
    parser.add_argument("--simumax", type=Path, metavar="FOLDER", help="a checkout of MooreThreads/SimuMax")
    args = parser.parse_args()
    running = tools(args.eleutherai, args.simumax)
    table = answers(running)
    if args.record:
        record(table, running)
    print(*lines_of(table), sep="\n")
    ran = ", ".join(VERSIONS[name] for name in running) or "none"
    print(f"\nrun here: {ran}; the others as recorded; [n]: answered so many")


if __name__ == "__main__":
    main()
