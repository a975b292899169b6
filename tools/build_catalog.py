"""Rebuild the model catalog: python tools/build_catalog.py CONFIGS_DIR SOURCES.csv PARAMS.csv [DEFAULT_PARAMS.csv]

CONFIGS_DIR holds ORG--NAME.json files, SOURCES.csv says where each came from (name, file, kind, source,
note), PARAMS.csv gives exact parameter counts. Out come src/vramwise/sources/catalog.jsonl, one line of
hyperparameters a model, and the golden tables tests/golden/parameter_counts.csv and
tests/golden/default_parameter_counts.csv. A line is not a copy of a file: only what sets sizes, caches,
precision or structure is kept. Beside this file are

- models_extra.jsonl: models in the same form, one JSON object each: a row of SOURCES.csv with the config itself in
  place of its file, and `params`, its row of PARAMS.csv. One of a name that SOURCES.csv has takes its place.
- model_variants.jsonl: checkpoints of the architecture of another: `name`, `like` (the other), `differs` (keys of the
  config with other values, null for those it has not), `source`, and `parameters` where a source counts them.
- model_corrections.jsonl: keys that a copied config has wrong or lacks: `name`, `differs`, `source`.
- model_aliases.csv: other names of the same checkpoint.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CATALOG = HERE.parent / "src" / "vramwise" / "sources" / "catalog.jsonl"
GOLDEN = HERE.parent / "tests" / "golden"

# The hub's new names of organisations; old names go on working there.
RENAMED_ORGS = {"THUDM": "zai-org", "CohereForAI": "CohereLabs"}

DROPPED = {
    line
    for line in (HERE / "catalog_dropped_keys.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
}
DROPPED_ENDINGS = ("_token_id", "_token_ids", "_token_index", "_token", "_eps", "_epsilon", "placeholder")
ROPE_TABLES = {"rope_scaling", "rope_parameters", "compress_rope_parameters"}
KEPT_IN_ROPE = {
    "factor",
    "high_freq_factor",
    "low_freq_factor",
    "mrope_section",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_type",
}
KEPT_IN_QUANTIZATION = {
    "activation_scheme",
    "bits",
    "desc_act",
    "fmt",
    "format",
    "group_size",
    "kv_cache_quant_algo",
    "kv_cache_scheme",
    "moe_quant_algo",
    "quant_algo",
    "quant_method",
    "scale_fmt",
    "sym",
    "weight_block_size",
    "weight_per_tensor",
    "zero_point",
}
KEPT_IN_SCHEME = ("num_bits", "type", "group_size", "block_structure", "strategy", "symmetric", "dynamic")
PUBLIC_LOG = re.compile(r"\s*\[?public log \(path not recorded\)\]?")


def essentials(config: dict[str, Any]) -> dict[str, Any]:
    """The keys of `config` that some modeling code reads for shapes, caches, precision or structure."""
    kept: dict[str, Any] = {}
    for key, value in sorted(config.items()):
        token = key.endswith(DROPPED_ENDINGS) and key != "num_experts_per_token"
        if key in DROPPED or token or value == {}:
            continue
        if key == "quantization_config":
            kept[key] = quantization(value)
        elif isinstance(value, dict) and key in ROPE_TABLES:
            kept[key] = rope(value)
        elif isinstance(value, dict):
            kept[key] = essentials(value)
        else:
            kept[key] = value
    return kept


def rope(value: dict[str, Any]) -> dict[str, Any]:
    """Type, factor and original length of a position scheme, also when it is given by layer type."""
    named = {"rope_type": value["type"]} if "type" in value else {}
    return named | {
        key: rope(part) if isinstance(part, dict) else part
        for key, part in value.items()
        if isinstance(part, dict) or key in KEPT_IN_ROPE
    }


def quantization(value: dict[str, Any]) -> dict[str, Any]:
    """Method, bits, groups and which modules it leaves alone."""
    kept = {key: part for key, part in value.items() if key in KEPT_IN_QUANTIZATION and part is not None}
    for key in ("modules_to_not_convert", "ignore"):
        if value.get(key):
            kept[key] = folded(value[key])
    groups = {}
    for name, group in value.get("config_groups", {}).items():
        parts = {key: scheme(group[key]) for key in ("weights", "input_activations") if group.get(key)}
        groups[name] = parts | {key: group[key] for key in ("format",) if group.get(key)}
        if group.get("targets"):
            groups[name]["targets"] = folded(group["targets"])
    if groups:
        kept["config_groups"] = groups
    by_algorithm: dict[str, list[str]] = {}
    for module, how in value.get("quantized_layers", {}).items():
        by_algorithm.setdefault(json.dumps(how, sort_keys=True), []).append(module)
    if by_algorithm:
        kept["quantized_layers"] = [
            {"modules": folded(folded(names))} | json.loads(how) for how, names in sorted(by_algorithm.items())
        ]
    return kept


def scheme(value: dict[str, Any]) -> dict[str, Any]:
    """How one group stores its numbers."""
    return {key: value[key] for key in KEPT_IN_SCHEME if value.get(key) is not None}


def folded(names: list[str]) -> list[str]:
    """Module names with their layer numbers gathered: `layers.0.mlp`, `layers.1.mlp` is `layers.[0-1].mlp`."""
    by_template: dict[str, set[int]] = {}
    for name in names:
        first = re.search(r"(?<=\.)\d+(?=\.|\*|$)", name)
        template = name[: first.start()] + "[]" + name[first.end() :] if first else name
        by_template.setdefault(template, set()).update({int(first.group())} if first else set())
    return sorted(template.replace("[]", f"[{ranges(found)}]") for template, found in by_template.items())


def ranges(numbers: set[int]) -> str:
    """Whole numbers as ranges: {0, 1, 2, 5} is 0-2,5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def worded(source: str) -> str:
    """A source without words about how it was collected."""
    return PUBLIC_LOG.sub(" (public log)", source).replace("  ", " ").strip()


def hyperparameters(name: str, config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Essentials of a config, and a remark when something of the file does not belong to the model."""
    method = str(config.get("quantization_config", {}).get("quant_method", ""))
    if method in {"awq", "gptq"} and method not in name.lower():
        unquantized = {key: value for key, value in config.items() if key != "quantization_config"}
        return essentials(unquantized), f"; read from its {method.upper()} copy, quantization left out"
    return essentials(config), ""


def correct(kept: dict[str, Any], differs: dict[str, Any]) -> dict[str, Any]:
    """`kept` with other values, in the tables inside it too, without the keys that are null."""
    changed = dict(kept)
    for key, value in differs.items():
        inner = kept.get(key)
        changed[key] = correct(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return {key: value for key, value in sorted(changed.items()) if value is not None or key not in differs}


def lines_of(name: str) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines beside this one."""
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def json_line(fields: dict[str, Any]) -> str:
    """One line of the catalog."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def catalog_lines(configs: str, sources: list[dict[str, Any]], params: dict[str, dict[str, str]]) -> list[str]:
    """One JSON line a checkpoint, sorted by id."""
    variants = lines_of("model_variants.jsonl")
    ids = {row["name"] for row in [*sources, *variants]}
    aliases: dict[str, list[str]] = {}
    for row in read_csv(HERE / "model_aliases.csv"):
        aliases.setdefault(row["id"], []).append(row["alias"])
        if row["alias"] in ids or row["id"] not in ids:
            sys.exit(f"model_aliases.csv: in the catalog already, or for a model that is not: {row['alias']}")
    corrections = {row["name"]: row for row in lines_of("model_corrections.jsonl")}
    lines = {}
    for row in sources:
        name = row["name"]
        config = row.get("config") or json.loads((Path(configs) / Path(row["file"]).name).read_text(encoding="utf-8"))
        kept, remark = hyperparameters(name, config)
        kept.setdefault("model_type", params[name]["model_type"])
        correction = corrections.pop(name, None)
        if correction is not None:
            kept = correct(kept, correction["differs"])
            remark += "; " + correction["source"]
        org, _, short = name.partition("/")
        names = aliases.get(name, [])
        if org in RENAMED_ORGS and f"{RENAMED_ORGS[org]}/{short}" not in ids:
            names.append(f"{RENAMED_ORGS[org]}/{short}")
        lines[name] = json_line(
            {
                "id": name,
                "aliases": names,
                "model_type": kept["model_type"],
                "kind": row["kind"],
                "source": worded(row["source"]) + remark,
                "hyperparameters": kept,
            }
        )
    if corrections:
        sys.exit(f"model_corrections.jsonl: for models that are none: {', '.join(corrections)}")
    for row in variants:
        if row["like"] not in ids or row["name"] in lines:
            sys.exit(
                f"model_variants.jsonl: {row['name']}: in the catalog already, or like {row['like']}, which is not"
            )
        names = aliases.get(row["name"], [])
        like = {"like": row["like"], "source": row["source"], "hyperparameters": row["differs"]}
        lines[row["name"]] = json_line({"id": row["name"], "aliases": names, **like})
    return [line for _, line in sorted(lines.items())]


def write_csv(path: Path, columns: list[str], rows: list[list[str]]) -> None:
    """A CSV table with a header."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def main(configs: str, sources_csv: str, params_csv: str, default_params_csv: str = "") -> int:
    """Write the catalog and the golden tables."""
    extra = lines_of("models_extra.jsonl")
    params = {row["name"]: row for row in read_csv(params_csv)} | {row["name"]: row["params"] for row in extra}
    models = {row["name"]: row for row in [*read_csv(sources_csv), *extra]}
    CATALOG.write_text("\n".join(catalog_lines(configs, list(models.values()), params)) + "\n", encoding="utf-8")
    made_with = "transformers 5.23.0 on the meta device, tied weights once"
    write_csv(
        GOLDEN / "parameter_counts.csv",
        ["id", "model_type", "total", "status", "source"],
        sorted(
            [name, row["model_type"], row["total_params"], row["status"], made_with if row["total_params"] else ""]
            for name, row in params.items()
        ),
    )
    write_csv(
        GOLDEN / "published_counts.csv",
        ["id", "total", "source"],
        [
            [row["name"], row["parameters"], row["source"]]
            for row in lines_of("model_variants.jsonl")
            if row.get("parameters")
        ],
    )
    if default_params_csv:
        write_csv(
            GOLDEN / "default_parameter_counts.csv",
            ["model_type", "class", "total", "tie_word_embeddings", "status", "source"],
            [
                [
                    row["model_type"],
                    row["class"],
                    row["total_params"],
                    row["tie_word_embeddings"],
                    row["status"],
                    made_with if row["total_params"] else "",
                ]
                for row in read_csv(default_params_csv)
            ],
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
