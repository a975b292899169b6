"""A dry run of every type's own class beside the estimate: what agreement.py does in width, for all that have a class.

    python tests/dryrun/every_type.py record ROWS.jsonl [--only bert] [--way b]    # runs what the file lacks
    python tests/dryrun/every_type.py compare ROWS.jsonl [--within 0.01]           # the estimate beside every row

The rows are `tests/golden/agreement_of_types.jsonl`, to which `test_every_type.py` holds the estimate. A type's config
is that of its smallest model in the catalog with its first layers, else the class's own defaults. A batch of text gives
what sees images and sound no gradient, so that of such models the language model alone trains.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import transformers
from agreement import deviations, ran, tensors

from vramwise.dryrun import launch
from vramwise.dryrun.scenario import dry_runs
from vramwise.errors import UsageError, VramwiseError
from vramwise.models import describe
from vramwise.models.family_of_type import FAMILY_OF_TYPE
from vramwise.models.operations.experts import ExpertMlps
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.sources.catalog import catalog

Row = dict[str, Any]
WAYS = {
    "a": ("full", "bf16", "none"), "b": ("full", "bf16-mixed", "full"), "c": ("lora", "bf16", "none"),
}  # fmt: skip
"""Method, precision, checkpointing."""
SAMPLES, LENGTH, DEPTH = 2, 512, 4
TIMEOUT_S = 300.0
_OF_CAPTIONS = {"clip": 64, "siglip": 64}
_LAYERS = (
    "num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers", "depth",
    "num_decoder_layers", "num_encoder_layers", "layers", "num_blocks",
)  # fmt: skip
_LENGTHS = ("max_position_embeddings", "n_positions")
_TOWERS = ("vision_config", "audio_config", "encoder_config")
_LANGUAGE = (("language_model", "lm_head"), ("text_model", "lm_head"), ("decoder", "lm_head"), ("lm_head",))
"""Names of the parts that a batch of text reaches, those of one kind of class after the other."""
_SAYS_NOTHING = frozenset({
    "id2label", "label2id", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "output_hidden_states",
    "return_dict", "chunk_size_feed_forward", "problem_type", "quantization_config",
})  # fmt: skip


def shallow(config: Mapping[str, Any], depth: int = DEPTH) -> dict[str, Any]:
    """A config, and those inside it, with the first layers alone."""
    counts = [config[key] for key in _LAYERS if isinstance(config.get(key), int) and config[key] > depth]
    cut = {key: depth if key in _LAYERS and value in counts else value for key, value in config.items()}
    for key, value in cut.items():
        if isinstance(value, dict):
            cut[key] = shallow(value, depth)
        elif isinstance(value, list) and counts and len(value) == counts[0]:
            cut[key] = value[:depth]
    if "attention_types" in cut:  # gpt_neo: [[kinds, times]]
        kinds = cut["attention_types"][0][0]
        cut["attention_types"] = [[kinds, depth // len(kinds)]]
    return cut


def configs(model_type: str, smallest: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Configs of a type in the order in which they are tried, with their names."""
    if model_type in smallest:
        yield smallest[model_type], _telling(resolve(smallest[model_type]).config)
    try:
        own = transformers.CONFIG_MAPPING[model_type]().to_dict()
    except Exception:  # whatever a class says to its own defaults
        return
    yield f"{model_type} defaults", _telling(json.loads(json.dumps({**own, "model_type": model_type})))


def _telling(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _SAYS_NOTHING}


def smallest_of_catalog() -> dict[str, str]:
    """Type -> its smallest model of the catalog."""
    found: dict[str, tuple[int, str]] = {}
    for name in (entry.id for entry in catalog()):
        try:
            config = resolve(name).config
            size = describe(config, name).num_parameters
        except VramwiseError:
            continue
        kind = str(config["model_type"])
        found[kind] = min(found.get(kind, (size, name)), (size, name))
    return {kind: name for kind, (_, name) in found.items()}


def scenario_of(config: Mapping[str, Any], way: str) -> dict[str, Any]:
    """How a config is trained in one way. Raises VramwiseError for one that no family describes."""
    method, precision, checkpointing = WAYS[way]
    if any(True for _ in describe(config).operations(ExpertMlps)):
        precision = precision.removesuffix("-mixed")  # grouped products take operands in bf16 alone
    most = _OF_CAPTIONS.get(str(config["model_type"]), LENGTH)
    train: dict[str, Any] = {
        "framework": "transformers", "method": method, "precision": precision, "checkpointing": checkpointing,
        "micro_batch_size": SAMPLES, "optimizer": "adamw", "optimizer_impl": "foreach",
        "sequence_length": min([most, *(config[key] for key in _LENGTHS if config.get(key))]),
    }  # fmt: skip
    sees = any(config.get(key) for key in _TOWERS)
    if method == "lora" and (sees or str(config["model_type"]) in _OF_CAPTIONS):
        raise UsageError("adapters of a part that a batch of text does not reach have no gradients")
    if method == "full" and sees and str(config["model_type"]) not in _OF_CAPTIONS:
        names = [parameter.name for parameter in describe(config).parameters]
        language = next((parts for parts in _LANGUAGE if any(parts[0] in name for name in names)), ())
        if language:
            train |= {"method": "freeze", "trainable": [one for one in language if any(one in name for name in names)]}
    return {"model": dict(config), "task": "train", "train": train}


def recorded(model_type: str, way: str, smallest: Mapping[str, str]) -> tuple[Row | None, list[str]]:
    """A type's row by the first config that runs, and why others did not."""
    problems = []
    for name, whole in configs(model_type, smallest):
        for config in (shallow(whole), whole):
            try:
                scenario = scenario_of(config, way)
                ((result, _),) = dry_runs([Scenario.from_dict(scenario)], timeout_s=TIMEOUT_S)
            except VramwiseError as problem:
                problems.append(f"{name}: {problem}")
                continue
            moments = {phase.name: tensors(phase) for phase in result.phases}
            row = {"id": f"{model_type}/{way}", "of": name, "scenario": scenario, "moments": moments}
            return row | {"ran": ran(result)}, problems
    return None, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a model_type")
    parser.add_argument("--way", action="append", default=[], choices=tuple(WAYS))
    parser.add_argument("--within", type=float, default=0.01)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.rows.read_text("utf-8").splitlines()] if args.rows.exists() else []
    if args.what == "compare":
        off = {row["id"]: found for row in rows if (found := deviations(row, args.within))}
        for name, found in off.items():
            print(name, *(f"{moment} {error:+.2%}" for moment, error in found.items()), sep="\n    ")
        print(f"{len(rows) - len(off)} of {len(rows)} rows agree within {args.within:.1%}")
        return int(bool(off))
    _record(args.rows, {row["id"] for row in rows}, args.only, args.way or list(WAYS))
    return 0


def _record(path: Path, known: set[str], only: list[str], ways: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from warm_python import WarmPython

    warm, smallest, real = WarmPython(), smallest_of_catalog(), launch.subprocess
    streams = {name: getattr(real, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    launch.subprocess = SimpleNamespace(Popen=warm.popen, **streams)  # type: ignore[assignment]
    types = [kind for kind in sorted(FAMILY_OF_TYPE) if kind in transformers.CONFIG_MAPPING]
    for way in ways:
        for kind in [kind for kind in types if (not only or kind in only) and f"{kind}/{way}" not in known]:
            row, problems = recorded(kind, way, smallest)
            if row is None:
                print(f"{kind}/{way}", *problems, sep="\n    ", flush=True)
                continue
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
    warm.close()


if __name__ == "__main__":
    raise SystemExit(main())
