"""Dry runs of the real classes beside the estimates, moment by moment: over families, methods, precisions, lengths.

    python tests/dryrun/agreement.py record ROWS.jsonl [--only llama --only gpt2]   # runs what the file lacks
    python tests/dryrun/agreement.py compare ROWS.jsonl [--within 0.005]            # the estimate beside every row

The rows are `tests/golden/agreement.jsonl`, to which `test_agreement.py` holds the estimate.
Widths, heads, vocabularies, experts and lengths are those of the published models; their first layers are run (a layer
adds what the one before it added), and models of WHOLE with all of theirs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vramwise.dryrun.scenario import dry_runs
from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.models import describe
from vramwise.result import Phase, Result
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import job_of

FAMILIES = (
    "meta-llama/Llama-3.2-1B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B", "google/gemma-2b",
    "google/gemma-2-2b", "google/gemma-3-1b-it", "microsoft/phi-1_5", "microsoft/Phi-3-mini-4k-instruct",
    "openai-community/gpt2", "EleutherAI/gpt-j-6b", "EleutherAI/gpt-neo-125m", "EleutherAI/pythia-1.4b",
    "facebook/opt-1.3b", "bigscience/bloom-560m", "bigcode/starcoder2-3b",
    "stabilityai/stablelm-2-zephyr-1_6b", "allenai/OLMo-1B-hf", "allenai/OLMo-2-1124-7B",
    "CohereForAI/c4ai-command-r-v01", "CohereLabs/c4ai-command-r7b-12-2024", "ibm-granite/granite-3.1-2b-instruct",
    "THUDM/glm-4-9b-chat-hf", "THUDM/GLM-4-9B-0414", "HuggingFaceTB/SmolLM3-3B", "kyutai/helium-1-preview",
    "LGAI-EXAONE/EXAONE-4.0-32B", "baidu/ERNIE-4.5-0.3B-PT", "google-bert/bert-base-uncased", "FacebookAI/roberta-base",
    "albert/albert-base-v1", "microsoft/biogpt", "facebook/xglm-564M", "bigcode/gpt_bigcode-santacoder",
    "Qwen/Qwen1.5-MoE-A2.7B", "Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-v0.1", "allenai/OLMoE-1B-7B-0924",
    "ByteDance-Seed/Seed-OSS-36B-Instruct", "nvidia/Nemotron-4-15B",
)  # fmt: skip
WHOLE = ("openai-community/gpt2", "google-bert/bert-base-uncased")
PERIOD = 2
"""Layers more where kinds of layers take turns."""
MASKED = frozenset({"bert", "roberta", "albert"})
WAYS: tuple[tuple[str, str, str, int, int, int], ...] = (
    ("full", "bf16", "none", 4, 512, 4),
    ("lora", "bf16", "none", 1, 2048, 2),
    ("full", "bf16-mixed", "none", 2, 1024, 2),
    ("full", "bf16", "full", 1, 2048, 2),
    ("lora", "bf16-mixed", "full", 1, 2048, 2),
    ("full", "fp32", "none", 1, 512, 2),
    ("lora", "bf16", "full", 4, 1024, 2),
    ("full", "bf16-mixed", "full", 2, 2048, 2),
    ("lora", "bf16-mixed", "none", 2, 512, 2),
    ("full", "fp16-mixed", "none", 2, 512, 2),
)
"""Method, precision, checkpointing, sequences, tokens of each, layers."""
OF_OTHER_INPUTS = ("google/vit-base-patch16-224", "google-t5/t5-base", "openai/whisper-small", "facebook/bart-base")
"""Images with their labels, texts with their answers, sound with its text: all layers, at the models' own lengths."""
OTHER_WAYS = (
    ("full", "bf16", "none", 1),
    ("full", "bf16-mixed", "none", 4),
    ("lora", "bf16", "none", 2),
    ("full", "bf16-mixed", "full", 2),
    ("lora", "bf16", "full", 2),
    ("lora", "fp16-mixed", "full", 1),
    ("full", "fp32", "full", 1),
)
"""Method, precision, checkpointing, samples."""
PIPELINES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sd1.5", {}),
    ("sd1.5", {"offload": "model", "vae_tiling": True, "batch_size": 2, "image_size": "1024x768"}),
    ("sd1.5", {"offload": "sequential"}),
    ("sd1.5", {"offload": "group"}),
    ("sd1.5", {"quantization": "fp8", "guidance_scale": 1.0}),
    ("sdxl", {}),
    ("sdxl", {"dtype": "bf16", "batch_size": 3, "vae_slicing": True, "image_size": "832x1216"}),
    ("sdxl", {"offload": "model"}),
    ("sd3.5-medium", {}),
    ("sd3.5-medium", {"dtype": "fp16", "offload": "model"}),
    ("flux-dev", {}),
    ("flux-dev", {"dtype": "fp16", "prompt_tokens": 256}),
    ("flux-dev", {"offload": "model", "quantization": "fp8"}),
    ("flux-dev:transformer", {"batch_size": 2}),
    ("qwen-image", {}),
    ("qwen-image", {"offload": "model"}),
    ("wan2.1-t2v-1.3b", {}),
    ("wan2.1-t2v-1.3b", {"vae_tiling": True, "offload": "group", "num_frames": 33}),
)
"""Pipelines of Diffusers and how each is run."""
NOT_TENSORS = frozenset({"library workspace", "library workspaces", "CUDA context", "unsplit remainders"})
TIMEOUT_S = 7200.0
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_LENGTHS = ("max_position_embeddings", "n_positions")

Row = dict[str, Any]


def cases(only: frozenset[str] = frozenset()) -> Iterator[Row]:
    """Every row's id and scenario."""
    for way in WAYS:
        for name in FAMILIES:
            config = resolve(name).config
            if only and config["model_type"] not in only and name not in only:
                continue
            yield _case(name, config, way, whole=False)
            if name in WHOLE:
                yield _case(name, config, way, whole=True)


def other_cases(only: frozenset[str] = frozenset()) -> Iterator[Row]:
    """The rows of classes that are fed other things than a text."""
    for name in OF_OTHER_INPUTS:
        if only and name not in only and resolve(name).config["model_type"] not in only:
            continue
        for method, precision, checkpointing, samples in OTHER_WAYS:
            train = {
                "framework": "transformers", "method": method, "precision": precision, "checkpointing": checkpointing,
                "micro_batch_size": samples, "optimizer": "adamw", "optimizer_impl": "foreach",
            }  # fmt: skip
            named = f"{name}/whole/{method}/{precision}/ckpt-{checkpointing}/b{samples}"
            yield {"id": named, "scenario": {"model": name, "task": "train", "train": train}}


def pipeline_cases(only: frozenset[str] = frozenset()) -> Iterator[Row]:
    """The rows of pipelines, of which none is made shallow."""
    for name, settings in PIPELINES:
        found = resolve(name)
        if not only or name in only or found.config["_class_name"] in only:
            how = "/".join(f"{key}-{value}" for key, value in settings.items()) or "as-it-is"
            scenario = {"model": name, "task": "generate", "generate": settings}
            yield {"id": f"{found.id}/{how}", "scenario": scenario}


def _case(name: str, config: Mapping[str, Any], way: tuple[str, str, str, int, int, int], *, whole: bool) -> Row:
    method, precision, checkpointing, samples, length, depth = way
    depth += PERIOD if config.get("sliding_window_pattern") or config.get("layer_types") else 0
    kind = str(config["model_type"])
    length = min([length, 512 if kind in MASKED else length, *(config[key] for key in _LENGTHS if config.get(key))])
    model: Any = name if whole else shallow(config, depth)
    train = {
        "framework": "transformers", "method": method, "precision": precision, "checkpointing": checkpointing,
        "micro_batch_size": samples, "sequence_length": length, "optimizer": "adamw", "optimizer_impl": "foreach",
        "head": "masked-lm" if kind in MASKED else "causal-lm",
    }  # fmt: skip
    layers = "whole" if whole else f"{depth}layers"
    named = f"{name}/{layers}/{method}/{precision}/ckpt-{checkpointing}/b{samples}/s{length}"
    return {"id": named, "scenario": {"model": model, "task": "train", "train": train}}


def shallow(config: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """A model's config with its first `depth` layers."""
    cut: dict[str, Any] = {**config, **{key: depth for key in _LAYERS if key in config}}
    for key, value in config.items():
        if isinstance(value, list) and len(value) == next((config[name] for name in _LAYERS if name in config), -1):
            cut[key] = value[:depth]
    if "attention_types" in config:  # gpt_neo: [[kinds, times]]
        kinds = config["attention_types"][0][0]
        cut["attention_types"] = [[kinds, depth // len(kinds)]]
    return cut


def tensors(phase: Phase) -> int:
    """Bytes of a moment's tensors alone."""
    return sum(node.bytes for node in phase.components.children if node.name not in NOT_TENSORS)


def recorded(wanted: list[Row]) -> Iterator[tuple[Row, str]]:
    """Each case with its moments, and why it does not run where it does not; one process until one fails."""
    while wanted:
        runs = dry_runs([Scenario.from_dict(case["scenario"]) for case in wanted], timeout_s=TIMEOUT_S)
        try:
            for result, _ in runs:
                case, *wanted = wanted
                moments = {phase.name: tensors(phase) for phase in result.phases}
                yield {**case, "moments": moments, "ran": ran(result)}, ""
        except VramwiseError as problem:
            case, *wanted = wanted
            yield case, str(problem)


def ran(result: Result) -> str:
    """What a dry run says of itself: the class and the versions."""
    return next(note for note in result.notes if note.startswith("dry run: "))


def estimated(scenario: Mapping[str, Any]) -> dict[str, int]:
    """Moment -> bytes of tensors, by the estimate."""
    model = scenario["model"]
    if scenario["task"] == "generate":
        return {phase.name: tensors(phase) for phase in estimate(dict(scenario)).phases}
    found = resolve(model) if isinstance(model, str) else None
    job = job_of(
        Scenario.from_dict(dict(scenario)), describe(found.config, found.id) if found else describe(model), None
    )
    return {moment.name: moment.total for moment in job.moments(job.ranks[0])}


def deviations(row: Row, within: float) -> dict[str, float]:
    """Moment -> relative error of the estimate, where it is further off than `within`; `peak` is the largest of all."""
    ours, theirs = estimated(row["scenario"]), dict(row["moments"])
    # A class that works its loss out inside forward has one moment of both.
    if "forward" in theirs and "loss" not in theirs:
        ours["forward"] = max(ours[name] for name in ("forward", "loss", "forward return") if name in ours)
    ours["peak"], theirs["peak"] = max(ours.values()), max(theirs.values())
    off = {name: ours[name] / theirs[name] - 1 for name in ours if theirs.get(name)}
    return {name: error for name, error in off.items() if abs(error) > within}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a model, or its model_type")
    parser.add_argument("--within", type=float, default=0.005)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.rows.read_text("utf-8").splitlines()] if args.rows.exists() else []
    if args.what == "compare":
        return _compare(rows, args.within)
    known = {row["id"] for row in rows}
    only = frozenset(args.only)
    lacking = [case for case in [*cases(only), *other_cases(only), *pipeline_cases(only)] if case["id"] not in known]
    for row, problem in recorded(lacking):
        if problem:
            print(row["id"], problem, sep="\n    ", flush=True)
            continue
        with open(args.rows, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    return 0


def _compare(rows: list[Row], within: float) -> int:
    off = {row["id"]: found for row in rows if (found := deviations(row, within))}
    for name, found in off.items():
        print(name, *(f"{moment} {error:+.2%}" for moment, error in found.items()), sep="\n    ")
    print(f"{len(rows) - len(off)} of {len(rows)} rows agree within {within:.1%}")
    return int(bool(off))


if __name__ == "__main__":
    raise SystemExit(main())
