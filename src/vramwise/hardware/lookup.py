"""Finding an accelerator by the names people and tools use for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from vramwise.errors import UnknownNameError, clipped, nearest
from vramwise.hardware.gpu import Gpu, gpu_of, rows_by_id

# Words that tell cards of one maker apart from nothing else.
_FILLER = frozenset(
    {
        "nvidia",
        "geforce",
        "tesla",
        "amd",
        "instinct",
        "radeon",
        "intel",
        "apple",
        "google",
        "aws",
        "gpu",
        "graphics",
        "card",
        "accelerator",
        "rtx",
        "gtx",
        "rx",
        "generation",
        "edition",
        "tensor",
        "core",
        "the",
        "of",
        "per",
    }
)
_BRAND_AND_NUMBER = re.compile(r"^(rtx|gtx|rx)(\d.*)$")
_NUMBER_AND_SUFFIX = re.compile(r"^(\d{4})(ti|super|tisuper|d|xt|xtx)$")
_NUMBER_AND_FORM = re.compile(r"^([a-z]+\d+)(sxm|pcie|nvl)$")
_MEMORY = re.compile(r"(?<![a-z0-9])(\d+)\s*(?:gib|gb|g)\b")
_CORES = re.compile(r"(\d+)-core")
# Tokens of an id that tell variants of one card apart; a name may leave them out.
_VARIANT = re.compile(r"^(\d+gb|\d+core|sxm|pcie|nvl|hbm\d?e?)$")


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """The accelerator that a name means, and what was chosen when several fit."""

    gpu: Gpu
    note: str | None


@lru_cache(maxsize=512)
def find_gpu(name: str) -> GpuMatch:
    """The accelerator that `name` means: an id, a marketing name, `nvidia-smi`'s name, or part of one.

    `4090`, `A100 80G`, `NVIDIA H100 80GB HBM3` all work. Where several cards fit, the SXM card is taken,
    then the lowest id, and `note` says so. Raises `UnknownNameError` with the nearest names.
    """
    exact = rows_by_id().get(name.strip().lower())
    if exact is not None:
        return GpuMatch(gpu_of(exact["id"]), None)
    asked = _tokens(name)
    for card in _cards():
        if asked and asked in card.aliases:
            return GpuMatch(gpu_of(card.id), None)
    fitting = _fitting(asked)
    if not fitting:
        raise UnknownNameError("GPU", name, _nearest_ids(name, asked), "vramwise gpus lists all")
    chosen = min(fitting, key=lambda gpu_id: ("-sxm" not in gpu_id, gpu_id))
    return GpuMatch(gpu_of(chosen), _note(name, chosen, fitting))


@dataclass(frozen=True, slots=True)
class _Card:
    id: str
    required: frozenset[str]
    allowed: frozenset[str]
    aliases: tuple[frozenset[str], ...]


@cache
def _cards() -> tuple[_Card, ...]:
    cards = []
    for row in rows_by_id().values():
        required = _tokens(row["id"])
        optional = {f"{row['memory_nominal_gb']}gb", *_tokens(row["name"]), *_tokens(row["arch"])}
        if not any("sxm" in token for token in required) and "PCIe" in row["pcie"]:
            optional.add("pcie")
        if "sxm" in required:
            optional |= {"hbm2", "hbm2e", "hbm3", "hbm3e"}
        others = [_tokens(alias) for alias in row["aliases"].split(";") if alias]
        cards.append(_Card(row["id"], required, required | optional, (_tokens(row["name"]), *others)))
    return tuple(cards)


def _tokens(text: str) -> frozenset[str]:
    """Words of a name in one spelling: `RTX4070Ti SUPER, 16 GB` is {4070, ti, super, 16gb}."""
    plain = _CORES.sub(r"\1core", _MEMORY.sub(r"\1gb ", text.lower().replace("_", "-")))
    words: list[str] = []
    for word in re.findall(r"[a-z0-9]+", plain):
        brand = _BRAND_AND_NUMBER.match(word)
        word = brand.group(2) if brand else word
        split = _NUMBER_AND_SUFFIX.match(word) or _NUMBER_AND_FORM.match(word)
        words += ("ti super" if part == "tisuper" else part for part in split.groups()) if split else [word]
    joined = " ".join("sxm" if re.fullmatch(r"sxm\d", word) else word for word in words)
    return frozenset(joined.split()) - _FILLER


def _fitting(asked: frozenset[str]) -> list[str]:
    """Ids of the cards that `asked` may mean, the closest ones only."""
    best: dict[tuple[int, int], list[str]] = {}
    for card in _cards():
        missing = {token for token in card.required - asked if not _VARIANT.match(token)}
        named = {token for token in asked & card.required if not _VARIANT.match(token)}
        if named and asked <= card.allowed and not any(map(_has_digit, missing)):
            best.setdefault((len(missing), len(asked - card.required)), []).append(card.id)
    return sorted(best[min(best)]) if best else []


def _has_digit(token: str) -> bool:
    return any(character.isdigit() for character in token)


def _note(name: str, chosen: str, fitting: list[str]) -> str | None:
    others = [gpu_id for gpu_id in fitting if gpu_id != chosen]
    if not others:
        return None
    return f'GPU "{clipped(name)}" fits several cards: took {chosen} (others: {", ".join(others)})'


def _nearest_ids(name: str, asked: frozenset[str]) -> list[str]:
    """Ids near a name, compared without the words that all cards of a maker share."""
    by_core: dict[str, str] = {}
    for card in sorted(_cards(), key=lambda card: ("-sxm" not in card.id, card.id)):
        tokens = [token for token in card.id.split("-") if not _VARIANT.match(re.sub(r"sxm\d", "sxm", token))]
        by_core.setdefault("".join(token for token in tokens if token not in _FILLER), card.id)
    core = "".join(token for token in re.findall(r"[a-z0-9]+", name.lower()) if token not in _FILLER)
    # Equally near names: the one whose number is closer comes first (4900: 4090 before 4060).
    in_order = sorted(by_core, key=lambda other: _number_gap(core, other))
    close = [by_core[near] for near in nearest(core, in_order)]
    return list(dict.fromkeys([*close, *nearest(name, rows_by_id())]))[:3]


def _number_gap(core: str, other: str) -> float:
    both = core.isascii() and core.isdigit() and other.isdigit() and len(core) < 10
    return abs(int(core) - int(other)) if both else float("inf")
