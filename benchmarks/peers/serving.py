"""llm-d-planner beside vramwise on start-up logs of vLLM: the activation peak and the memory outside torch.

    python benchmarks/peers/serving.py                     from what was recorded
    python benchmarks/peers/serving.py --record            with llm-d-planner and transformers installed

llm-d-planner's two functions ask for the model's config and the number of GPUs alone; its weights and KV cache ask the
hub. Its constants were calibrated on runs of vLLM 0.19 which it published, and which are among the cases: these stand
in a column of their own, for they are no test of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "src"))

from vramwise.accuracy.cases import Case, read_cases  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.estimation import described_model, estimate  # noqa: E402
from vramwise.scenario import Scenario  # noqa: E402
from vramwise.units import GIB  # noqa: E402

TOOL, VERSION = "llm-d-planner", "llm-d-planner 0.3.3"
RECORDED = HERE / "recorded_serving.jsonl"
COUNTERS = ("activation_peak", "non_torch")
OWN = "llmd-"
"""How the ids of its own runs begin."""
GROUPS = ("its own runs", "other logs")


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


def group_of(case: Case) -> str:
    return GROUPS[0] if case.id.startswith(OWN) else GROUPS[1]


def planner_answers(scenario: Scenario) -> dict[str, float]:
    """Bytes by counter, as its own functions return them. Needs llm-d-planner and transformers."""
    from planner.capacity_planner import estimate_vllm_activation_memory, estimate_vllm_non_torch_memory
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto as names

    values = dict(described_model(scenario.model)[0].config)
    kind = values.pop("model_type")
    config = AutoConfig.for_model(kind, **{key: value for key, value in values.items() if key != "auto_map"})
    if not config.architectures:  # catalogs leave it out: the class that transformers has for the type
        tables = (names.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, names.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
        config.architectures = [table[kind] for table in reversed(tables) if kind in table][:1]
    serve = scenario.settings
    ranks, stages = serve.tensor_parallel_size, serve.pipeline_parallel_size
    return {
        "activation_peak": estimate_vllm_activation_memory(config, ranks) * GIB,
        "non_torch": estimate_vllm_non_torch_memory(ranks, stages) * GIB,
    }


def recorded() -> dict[tuple[str, str], float]:
    """Bytes by case and counter."""
    rows = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]
    return {(row["id"], counter): row[counter] for row in rows for counter in COUNTERS if counter in row}


def record() -> None:
    """Ask the tool about every case and keep what it says."""
    lines = []
    for case, scenario in judged_cases():
        try:
            said = planner_answers(scenario)
        except Exception:
            continue  # an answer that it does not have
        asked = {counter: round(said[counter]) for counter in COUNTERS if counter in case.measured}
        lines.append(json.dumps({"tool": TOOL, "version": VERSION, "id": case.id, **asked}))
    RECORDED.write_text("\n".join(sorted(lines)) + "\n", "utf-8")


def errors() -> dict[tuple[str, str, str], list[float]]:
    """Errors in GiB by tool, counter and group, on the cases that both answer."""
    known, found = recorded(), dict[tuple[str, str, str], list[float]]()
    for case, scenario in judged_cases():
        try:
            ours = estimate(scenario).quantities
        except VramwiseError:
            continue
        for counter in COUNTERS:
            if counter not in case.measured or counter not in ours or (case.id, counter) not in known:
                continue
            for tool, said in ((TOOL, known[case.id, counter]), ("vramwise", ours[counter].expected)):
                place = tool, counter, group_of(case)
                found.setdefault(place, []).append((said - float(case.measured[counter])) / GIB)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="llm-d-planner beside vramwise on start-up logs of vLLM")
    parser.add_argument("--record", action="store_true", help="write the tool's answers to recorded_serving.jsonl")
    if parser.parse_args().record:
        record()
    found = errors()
    print("median |error| (worst), GiB")
    for counter in COUNTERS:
        for group in GROUPS:
            cells = []
            for tool in ("vramwise", TOOL):
                gaps = found.get((tool, counter, group), [])
                if gaps:
                    worst = f"{max(gaps, key=abs):+.2f}".replace("-", "−")
                    cells.append(f"{tool} {statistics.median(map(abs, gaps)):.2f} ({worst})")
            count = len(found.get(("vramwise", counter, group), []))
            print(f"  {counter:<16} {group:<13} {count:>4}   {'   '.join(cells)}")
    print(f"\n{VERSION}, as recorded")


if __name__ == "__main__":
    main()
