"""The same question asked in other ways, at its limits, with its advice followed, and a little larger."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from holds import LLAMA_CPP, answer, holds_together, same

from vramwise.cli.main import main
from vramwise.estimation import estimate
from vramwise.hardware import find_gpu
from vramwise.hardware.room import room_of
from vramwise.planner.suggestions import suggestions
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, table_of
from vramwise.scenario.words import command_words
from vramwise.sources.catalog import catalog

MOST_SEQUENCES = 1_000_000
ROUTERS_IN_FP32 = ("ernie4_5_moe", "ernie4_5_vl_moe")
"""Types with `_keep_in_fp32_modules_strict` (transformers 5.23 models/ernie4_5_moe/modeling_ernie4_5_moe.py)."""
ADVICE = re.compile(r"\b(?:set|and) (?P<key>[a-z_]+) to (?P<value>[^\s;]+)")
LIMITS = {
    "train": {"max_batch": "micro_batch_size", "max_seq": "sequence_length"},
    "generate": {"max_batch": "batch_size", "max_seq": "prompt_tokens"},
}
LARGER = {
    "train": ("micro_batch_size", "sequence_length"),
    # Not tokens and requests in a step: what they take is charged to the share, and captured graphs use it again, so
    # that less has to be there beside the share and a smaller card may do.
    "serve": ("max_model_len",),
    "generate": ("batch_size", "prompt_tokens", "new_tokens"),
}


def changed(result: Result, table: str, **changes: Any) -> dict[str, Any]:
    """The resolved scenario with other values in one of its tables ("" is the top)."""
    scenario = dict(result.scenario)
    if not table:
        return scenario | changes
    return scenario | {table: {**scenario.get(table, {}), **changes}}


def asked_again(scenario: dict[str, Any], result: Result) -> None:
    """The resolved scenario has the same answer."""
    again = answer(dict(result.scenario))
    assert again is not None
    same(result, again)


def asked_five_ways(scenario: dict[str, Any], result: Result) -> None:
    """As flags, TOML, YAML, JSON and a line of a batch, the answer is the same.

    Flags state what follows from others too (GPUs from a split, nf4 from QLoRA), which then needs no note.
    """
    expected = json.loads(result.to_json())
    with TemporaryDirectory() as folder:
        for name, arguments in _ways(scenario, Path(folder)):
            printed = _printed(arguments)
            found = printed["result"] if name == "batch" else printed
            found.pop("suggestions", None)  # more estimates, which the command makes and the library on demand
            if name == "flags":
                assert set(found["notes"]) <= set(expected["notes"]), (found["notes"], expected["notes"])
                found["notes"] = expected["notes"]
            assert found == expected, name


def _ways(scenario: dict[str, Any], folder: Path) -> Iterator[tuple[str, list[str]]]:
    texts = {
        "toml": _toml(scenario),
        "yaml": yaml.safe_dump(scenario),
        "json": json.dumps(scenario),
        "jsonl": json.dumps(scenario) + "\n",
    }
    if isinstance(scenario["model"], dict):  # no flag holds a config, and TOML has no null
        del texts["toml"]
    for suffix, text in texts.items():
        (folder / f"scenario.{suffix}").write_text(text, "utf-8")
    if isinstance(scenario["model"], str):
        yield "flags", ["estimate", *command_words(Scenario.from_dict(scenario)), "--json"]
    for suffix in ("toml", "yaml", "json"):
        if suffix in texts:
            yield suffix, ["estimate", "--scenario", str(folder / f"scenario.{suffix}"), "--json"]
    yield "batch", ["batch", "--limits", str(folder / "scenario.jsonl")]


def _printed(arguments: list[str]) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(arguments)
    assert code in (0, 3), (arguments, code)
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def _toml(scenario: dict[str, Any]) -> str:
    """JSON's numbers, texts, truth values and lists are TOML's too; tables come last."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in scenario.items() if not isinstance(value, dict)]
    for name, table in scenario.items():
        if isinstance(table, dict):
            plain += [f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(plain) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def at_its_limits(scenario: dict[str, Any], result: Result) -> None:
    """The largest batch and the longest sequence fit, and the next ones do not."""
    task = str(result.scenario["task"])
    for quantity, key in LIMITS.get(task, {}).items():
        if quantity not in result.quantities:
            continue
        largest = int(result.quantities[quantity].expected)
        if largest:
            there = answer(changed(result, task, **{key: largest}))
            assert _has_memory(there), (key, largest)
        if largest == MOST_SEQUENCES:  # the search ends there
            continue
        beyond = answer(changed(result, task, **{key: largest + 1}))
        if _has_memory(beyond):  # the model's positions end there, not the memory
            assert beyond is not None
            assert (quantity, beyond.quantities[quantity].expected) == ("max_seq", largest), (key, largest + 1)


def _has_memory(result: Result | None) -> bool:
    return result is not None and result.verdict is not None and result.verdict.headroom_bytes >= 0


def with_its_advice(scenario: dict[str, Any], result: Result) -> None:
    """Every `set KEY to VALUE` of a verdict is taken by the engine, and fits."""
    if result.verdict is None or result.verdict.fits:
        return
    for reason in result.verdict.reasons:
        changes = {found["key"]: _value(found["value"]) for found in ADVICE.finditer(reason)}
        if not changes:
            continue
        followed = answer(_followed(scenario, changes))
        assert followed is not None, reason
        assert followed.verdict is not None, reason
        assert followed.verdict.fits, reason


def _followed(scenario: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The scenario with the advice; GPUs that a split needs follow from it."""
    table = table_of(str(scenario["task"]))
    followed = {**_counted(scenario), table: {**scenario.get(table, {}), **changes}}
    if any(key.endswith("_parallel_size") for key in changes):
        followed.pop("num_gpus", None)
    return followed


def _counted(scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario with equal cards of a list counted, as they are read, so that more of them can be asked for."""
    if len(set(scenario.get("gpus", ()))) != 1:
        return scenario
    counted = {key: value for key, value in scenario.items() if key != "gpus"}
    return {**counted, "gpu": scenario["gpus"][0], "num_gpus": len(scenario["gpus"])}


def _value(text: str) -> Any:
    text = text.rstrip(".").replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+\.?", text) else text.rstrip(".,")
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return [float(share) for share in text.split(",")] if re.fullmatch(r"[\d.]+(,[\d.]+)+", text) else text


def with_its_hints(scenario: dict[str, Any], result: Result) -> None:
    """Every hint, asked for as a scenario of its own, needs what is said of it, and then fits or does not."""
    for hint in suggestions(Scenario.from_dict(scenario), result, estimate):
        table = table_of(str(scenario["task"]))
        given = {} if hint.change.fresh else dict(scenario.get(table, {}))
        top = {key: value for key, value in hint.change.values.items() if key in KINDS[Scenario]}
        inner = given | {key: value for key, value in hint.change.values.items() if key not in top}
        followed = answer({**_counted(scenario), **top, table: inner})
        assert followed is not None, hint.change.words
        if (
            scenario.get("serve", {}).get("engine") not in LLAMA_CPP
        ):  # whose need is a sum over devices, and a hint's that of the fullest
            assert followed.quantities["total_needed"] == hint.needed, hint.change.words
        assert (followed.verdict is not None and followed.verdict.fits) == hint.fits, hint.change.words


def finds_no_piece(result: Result) -> bool:
    """Whether the step stops although the bytes that it holds would fit."""
    return result.verdict is not None and any("no free piece" in reason for reason in result.verdict.reasons)


def a_little_larger(scenario: dict[str, Any], result: Result) -> None:
    """Twice a size needs no less, and a larger card is no worse."""
    task = str(result.scenario["task"])
    table = result.scenario.get(table_of(task), {})
    for key in LARGER.get(task, ()):
        if type(table.get(key)) is not int:
            continue
        larger = answer(changed(result, table_of(task), **{key: 2 * table[key]}))
        if larger is not None and "total_needed" in larger.quantities:
            # A step that finds no piece of memory needs at least the segment that it stops at; a larger one may stop at
            # a smaller segment (reserved_memory/reserved.py with_segment).
            stops = finds_no_piece(result) and not (larger.verdict is not None and larger.verdict.fits)
            ends = ("low",) if stops else ("low", "expected", "high")
            for end in ends[1:] if _has_a_router_in_fp32(result.scenario["model"]) else ends:
                before, after = (getattr(one.quantities["total_needed"], end) for one in (result, larger))
                assert after >= before, (key, end, before, after)
    if result.verdict is None or result.capacity is None:
        return
    roomier = answer(changed(result, "", **_larger_card(result)))
    assert roomier is not None
    assert roomier.verdict is not None
    holds_together(roomier)
    words = ("does not fit", "tight", "fits")
    assert words.index(roomier.verdict.word) >= words.index(result.verdict.word)


def on_cards_of_several_sizes(scenario: dict[str, Any], result: Result) -> None:
    """With the same settings, a larger card is no less likely to do.

    A step that finds no free piece may on a larger card than one on which it ran: segments break up otherwise there.
    Nor does it hold for modules that are placed by the room of each card (accelerate's device_map).
    """
    if result.capacity is None or "total_needed" not in result.quantities:
        return
    if "generate" in result.scenario and result.scenario.get("num_gpus", 1) > 1:
        return
    need, before = int(result.quantities["total_needed"].expected), 0.0
    alone = {key: value for key, value in result.scenario.items() if key not in ("gpu_free_bytes", "reserve_bytes")}
    for percent in (70, 90, 97, 100, 101, 103, 110, 130, 200):
        card = answer({**alone, "gpu_total_bytes": need * percent // 100})
        if card is None or card.verdict is None or finds_no_piece(card):
            continue
        assert card.verdict.probability >= before, (percent, card.verdict.probability, before)
        before = card.verdict.probability


def _has_a_router_in_fp32(model: Any) -> bool:
    """An open point: the class keeps this weight in fp32, as the walk of a step has it; the weights, gradients and
    states of a training count it in the model's dtype (0.005 % of the need): what is certain moves with the peak.
    """
    if isinstance(model, dict):
        return model.get("model_type") in ROUTERS_IN_FP32
    return any(entry.id == model and entry.model_type in ROUTERS_IN_FP32 for entry in catalog(str(model)))


def _larger_card(result: Result) -> dict[str, int]:
    """A card twice as large, of which others hold as much, and of which as much or the same share must stay free."""
    assert result.capacity is not None
    asked = Scenario.from_dict(dict(result.scenario))
    if asked.gpu_free_bytes is None and not asked.reserve_bytes:
        return {"gpu_total_bytes": 2 * result.capacity.usable_bytes}
    total = 2 * result.capacity.total_bytes
    if asked.gpu_free_bytes is None:
        return {"gpu_total_bytes": total}
    room = room_of(asked, find_gpu(asked.gpu).gpu if asked.gpu else None)
    return {"gpu_total_bytes": total, "gpu_free_bytes": total - (room.held_bytes if room is not None else 0)}


CHECKS = (
    asked_again,
    asked_five_ways,
    at_its_limits,
    with_its_advice,
    with_its_hints,
    a_little_larger,
    on_cards_of_several_sizes,
)
