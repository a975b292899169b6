"""DeepSpeed files that frameworks ship, known by their paths: what they say about memory, in deepspeed_files.csv.

A setting is one of `zero_optimization`, but `bf16`, `compile` and `tensor_parallel` stand above it; `fp16` follows
`bf16` in all. `ms-swift:` stands before names that ms-swift takes in place of a path.
"""

from __future__ import annotations

from functools import cache

from vramwise.tables import table

_OFFLOADS = ("offload_optimizer", "offload_param")


@cache
def shipped_files() -> dict[str, tuple[str, str]]:
    """Settings and source of each file."""
    return {row["file"]: (row["settings"], row["source"]) for row in table(__file__)}


def shipped_deepspeed_file(path: str) -> tuple[dict[str, object], str] | None:
    """The configuration of a file that is not here but that a framework ships under the path's end, and its source."""
    *_, folder, name = ["", "", *path.replace("\\", "/").split("/")]
    for known, (settings, source) in shipped_files().items():
        if known == path or (folder and known.endswith(f"{folder}/{name}")):
            return _configuration(settings), source
    return None


def _configuration(settings: str) -> dict[str, object]:
    zero: dict[str, object] = {}
    above: dict[str, object] = {}
    pairs = dict(setting.split("=") for setting in settings.split())
    pinned = pairs.pop("pin_memory", None)
    for name, text in pairs.items():
        value = _value(text)
        if name in _OFFLOADS:
            zero[name] = {"device": text, **({} if pinned is None else {"pin_memory": _value(pinned)})}
        elif name == "bf16":
            above |= {"bf16": {"enabled": value}, "fp16": {"enabled": "auto" if value == "auto" else False}}
        elif name == "compile":
            above["compile"] = {"disable": False}
        elif name == "tensor_parallel":
            above["tensor_parallel"] = {"autotp_size": value}
        else:
            zero[name] = value
    return {"zero_optimization": zero, **above}


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text
