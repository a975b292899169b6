"""Adapters and quantized bases, by the many names that training scripts give them."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.errors import clipped
from vramwise.interop.launch.model_facts import model_type
from vramwise.interop.launch.model_parts import described
from vramwise.interop.launch.options import Options, options_of
from vramwise.interop.launch.values import fraction

RANK_ASSUMED = "adapters, taken as of rank 16 in every linear layer (--max-lora-rank, --lora-targets)"
_SWITCHES = ("use_peft", "use_lora", "lora_enable", "use_peft_lora", "use_qlora", "q_lora")
_RANKS = ("lora_r", "lora_rank", "peft_lora_r")
_TARGETS = ("lora_target_modules", "lora_target")
_KINDS_OF_MODULES = {"all-embedding": "embedding", "all-norm": "norm"}  # ms-swift 4.6 pipelines/train/tuner.py
_SAVED, _PARAMETERS = "lora_modules_to_save", "lora_target_parameters"
_DOUBLED = ("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "use_nested_quant", "double_quant")


def adapter_settings(
    options: Options, model: str, *, rank: int, dropout: float, gated: bool
) -> tuple[dict[str, object], list[str]]:
    """Method and adapters. `gated`: only `--use_peft` makes adapters, as in TRL; else a rank alone does too."""
    bits = options.number("bits") if "bits" in options.values else None
    in_4 = options.is_on("load_in_4bit", "use_4bit_quantization", "use_4bit") or bits == 4
    in_8 = options.is_on("load_in_8bit") or bits == 8
    named = [name for name in _SWITCHES if name in options.values]
    has = any(options.is_on(name) for name in named)
    if not named and not gated:
        has = options.number(*_RANKS) is not None
    mode = (options.first("train_mode") or "").lower()
    if mode in ("full", "lora", "qlora"):
        has, named = mode != "full", ["train_mode"]
    if options.is_on("use_qlora", "q_lora") or mode == "qlora":
        in_4 = in_4 or not in_8
    if not has and (in_4 or in_8) and not gated:
        has = True  # only adapters train on a quantized base
    if not has:
        spare = [options.shown[name] for name in (*_RANKS, *_TARGETS, _SAVED, _PARAMETERS) if name in options.values]
        why = f"train_mode {mode} makes no adapters" if mode == "full" else "no adapters without --use_peft"
        said = [f"{', '.join(spare)}: {why}"] if spare else []
        return {"method": "full"}, said
    found: dict[str, object] = {
        "method": "qlora" if in_4 or in_8 else "lora",
        "lora_rank": options.number(*_RANKS) or rank,
        "lora_dropout": fraction(options.first("lora_dropout") or str(dropout)),
    }
    if in_4:
        kind = (options.first("bnb_4bit_quant_type") or "nf4").lower()
        found["quantization"] = f"{kind}-dq" if kind == "nf4" and options.is_on(*_DOUBLED) else kind
    elif in_8:
        found["quantization"] = "int8"
    if options.is_on("use_dora"):
        found["dora"] = True
    targets, notes = targets_of(options.several(*_TARGETS), model, options.several(_PARAMETERS))
    whole, said = beside_adapters(options.several(_SAVED), model)
    return {**found, "lora_targets": targets, **whole}, [*notes, *said]


def targets_of(
    given: list[str], model: str, parameters: Sequence[str] = ()
) -> tuple[str | list[str], list[str]]:  # fmt: skip
    """Modules with adapters: those given, else peft's choice for the model's type; with them `target_parameters`."""
    targets, notes = _modules_with_adapters(given, model)
    if not parameters:
        return targets, notes
    return [*([targets] if isinstance(targets, str) else targets), *parameters], notes


def _modules_with_adapters(given: list[str], model: str) -> tuple[str | list[str], list[str]]:
    if any(name in ("all-linear", "all") for name in given):
        return "all-linear", []
    if given:
        return given, []
    kind = model_type(model)
    row = options_of("peft_targets").get(kind)
    if row is None:
        return "all-linear", [f"peft has no default targets for {kind or 'this model'}: all linear layers are taken"]
    return row.key.split(), [f"no target modules are named: peft's own for {kind} are taken, {row.key}"]


def beside_adapters(given: list[str], model: str) -> tuple[dict[str, object], list[str]]:
    """Whole modules that train beside adapters (peft's `modules_to_save`), of those that the model has."""
    if not given:
        return {}, []
    parts = _parts_of(model)
    names = [found for name in given for found in _modules(name, parts)]
    kept = [name for name in dict.fromkeys(names) if not parts or any(name in parameter for parameter in parts)]
    missing = ", ".join(clipped(name) for name in names if name not in kept)
    notes = [f"no module of the model is named so, left out: {missing}"] if missing else []
    return ({"trainable": kept} if kept else {}), notes


def _modules(name: str, parts: dict[str, str]) -> list[str]:
    """A module's name, or those of all that are of a kind."""
    kind = _KINDS_OF_MODULES.get(name)
    if kind is None or not parts:
        return [name]
    return sorted({parameter.split(".")[-2] for parameter, part in parts.items() if part == kind})


def _parts_of(model: str) -> dict[str, str]:
    """What each parameter is a part of, by its name; empty where the model is not described here."""
    known = described(model)
    return {} if known is None else {parameter.name: parameter.part for parameter in known.all_parameters}
