"""Finding an accelerator by the names people and tools use for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from vramwise.errors import UnknownNameError, clipped, nearest
from vramwise.hardware.gpu import Gpu, added_rows, gpu_of, rows_by_id, sized_ids
from vramwise.records import record
from vramwise.tables import Row
from vramwise.units import GIB

if TYPE_CHECKING:
    from vramwise.hardware.slices import Asked

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
        "jetson",
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
        # where one rents it or what it stands in
        "colab",
        "kaggle",
        "runpod",
        "lambda",
        "vast",
        "dgx",
        "hgx",
        "desktop",
        "unified",
        "memory",
        "vram",
        "ram",
        "chip",
        "with",
        "single",
    }
)
_BRANDS = ("rtx", "gtx", "rx")
_NO_CARD = frozenset({"cpu", "none", "no", "cpu only", "cpu-only", "0"})
_MACS = re.compile(r"\b(?:macbook(?:\s+(?:pro|air))?|mac(?:\s+(?:studio|mini|pro))?|imac(?:\s+pro)?)\b")
_BRAND_AND_NUMBER = re.compile(r"^(rtx|gtx|rx)(\d.*)$")
_NUMBER_AND_SUFFIX = re.compile(r"^(\d{4})(ti|super|tisuper|d|xt|xtx)$")
_NUMBER_AND_FORM = re.compile(r"^([a-z]+\d+)(sxm|pcie|nvl)$")
_PLURAL = re.compile(r"^(\d{4})s$")  # 3090s
_MEMORY = re.compile(r"(?<![a-z0-9])(\d+)\s*(?:gib|gb|g)\b")
_MARKS = re.compile(r"\((?:r|tm)\)")
_CORES = re.compile(r"(\d+)-core")
# Tokens of an id that tell variants of one card apart; a name may leave them out.
_VARIANT = re.compile(r"^(\d+gb|\d+core|sxm|pcie|nvl|hbm\d?e?)$")
_SIZE = re.compile(r"^\d+gb$")
# Words that make another product of the same number: a name without one never means a card with it.
_PRODUCT = frozenset({"ti", "super", "laptop", "maxq", "d", "v2", "xt", "xtx", "gre", "sff", "nano", "nx", "agx"})
_SAME = {"mobile": "laptop", "notebook": "laptop"}
_MAY_BE_A_PART = re.compile(r"\dg[.-]\d+gb|%", re.IGNORECASE)
_CUT_OFF = re.compile(r"\s*(?:\.{2,}|…)\s*$")  # nvidia-smi's table ends long names so


@record
class GpuMatch:
    """The accelerator that a name means, and what was chosen when several fit."""

    gpu: Gpu
    note: str | None


@lru_cache(maxsize=512)
def find_gpu(name: str) -> GpuMatch:
    """The accelerator that `name` means: an id, a marketing name, `nvidia-smi`'s name, or part of one.

    `4090`, `A100 80G`, `NVIDIA H100 80GB HBM3` all work. Where several cards fit, the SXM card is taken,
    then the lowest id (the smallest of shared memory), and `note` says so. A name never means a product whose
    number or suffix it does not have: `5060` is no RTX 5060 Ti, a laptop's card no desktop one. Raises
    `UnknownNameError` with the nearest names, also for a name that nvidia-smi cut off where several begin so.
    """
    if _MAY_BE_A_PART.search(name):
        from vramwise.hardware.slices import part_asked

        asked_part = part_asked(name)
        if asked_part is not None:
            return _part(name, asked_part)
    exact = name.strip().lower()
    if exact in sized_ids() or exact in rows_by_id():
        gpu = gpu_of(exact)
        several = len(gpu.memory_options_gb) > 1 and exact in rows_by_id()
        return GpuMatch(gpu, _sizes_note(name, gpu) if several else None)
    if _CUT_OFF.search(name):
        return _cut_off(name)
    asked = _tokens(name)
    fitting = [card.id for card in _cards() if asked and asked in card.aliases]
    if len(fitting) == 1 and not any(map(_SIZE.match, asked)):
        fitting += _same_but_memory(fitting[0])
        if len(fitting) > 1:  # the driver calls both so; the name itself says which one is meant
            return GpuMatch(gpu_of(fitting[0]), _note(name, fitting[0], sorted(fitting), ""))
    missing = ""
    if not fitting:
        fitting, missing = _fitting(asked)
    if not fitting:
        fitting, missing = _fitting(_with_memory(asked))
    if not fitting:
        fitting = _added(exact, asked)
    if not fitting:
        hint = "num_gpus 0 (-n 0) is CPU only" if exact in _NO_CARD else "vramwise gpus lists all"
        if exact not in _NO_CARD and re.fullmatch(r"\s*(?:\d{1,4}\s*[xX*×]|[1-9]\d?)\s*", name):
            raise UnknownNameError("GPU", name, hint="a number of cards stands before their name, such as 2xh100")
        raise UnknownNameError("GPU", name, () if exact in _NO_CARD else _nearest_ids(name), hint)
    chosen = min(fitting, key=_preference)
    return GpuMatch(gpu_of(chosen), _note(name, chosen, fitting, missing))


def _part(name: str, asked: Asked) -> GpuMatch:
    """A MIG slice or a share of a card. Raises UnknownNameError for a profile that the card does not have."""
    from vramwise.hardware.slices import cards_with, mig_slice, profiles, share_of

    if asked.percent:
        whole = find_gpu(asked.rest)
        return GpuMatch(share_of(whole.gpu, asked.percent), whole.note)
    having = cards_with(asked.profile)
    if not having:
        raise UnknownNameError("MIG profile", asked.profile, nearest(asked.profile, profiles()))
    named = set(_named(asked.rest)) if asked.rest else {card for card, _ in having}
    fitting = [(card, row) for card, row in having if card in named]
    if not fitting:
        cards = ", ".join(card for card, _ in having)
        raise UnknownNameError("GPU", name, hint=f"{asked.profile} is a MIG profile of {cards}")
    smallest = [card for card, row in fitting if row["fraction"] == fitting[0][1]["fraction"]]
    chosen = min(smallest, key=_preference)
    row = next(row for card, row in fitting if card == chosen)
    found = mig_slice(chosen, row)
    others = [f"{card}-mig-{asked.profile}" for card, _ in fitting if card != chosen]
    return GpuMatch(found, _note(name, found.id, [found.id, *others], "") if others else None)


def _named(name: str) -> list[str]:
    """Ids of all cards that a name may mean."""
    exact = name.replace(" ", "-")
    if exact in rows_by_id():
        return [exact]
    asked = _tokens(name)
    aliases = [card.id for card in _cards() if asked and asked in card.aliases]
    return list(dict.fromkeys([*aliases, *_fitting(asked)[0]])) or [find_gpu(name).gpu.id]


def _added(exact: str, asked: frozenset[str]) -> list[str]:
    """The one card of a plug-in that a name means; none where several do."""
    if exact in added_rows():
        return [exact]
    cards = _cards_of(added_rows())
    fitting = [card.id for card in cards if asked and (asked in card.aliases or card.core <= asked <= card.allowed)]
    return fitting if len(fitting) == 1 else []


def find_installed_gpu(name: str, total_bytes: int | None) -> GpuMatch:
    """The accelerator that a driver calls `name`; its memory tells cards apart that share a name."""
    if total_bytes and not _CUT_OFF.search(name):
        with suppress(UnknownNameError):  # sold under another number than GiB, or shared
            return find_gpu(f"{name} {round(total_bytes / GIB)}GB")
    return find_gpu(name)


def _preference(gpu_id: str) -> tuple[bool, int, str]:
    return "-sxm" not in gpu_id, sized_ids().get(gpu_id, ("", 0))[1], gpu_id


@record
class _Card:
    id: str
    required: frozenset[str]
    allowed: frozenset[str]
    aliases: tuple[frozenset[str], ...]

    @property
    def core(self) -> frozenset[str]:
        """The words of the id that no name may leave out."""
        return frozenset(token for token in self.required if not _VARIANT.match(token))


@cache
def _cards() -> tuple[_Card, ...]:
    """Every card, one with shared memory once for each size."""
    return _cards_of(rows_by_id())


def _cards_of(rows: Mapping[str, Row]) -> tuple[_Card, ...]:
    cards = []
    sized: dict[str, list[str]] = {}
    for gpu_id, (base, _) in sized_ids().items():
        sized.setdefault(base, []).append(gpu_id)
    for row in rows.values():
        name = _tokens(row["name"])
        others = [_tokens(alias) for alias in row["aliases"].split(";") if alias]
        for gpu_id in sized.get(row["id"], [row["id"]]):
            required = _tokens(gpu_id)
            optional = {*name, *_tokens(row["arch"])}
            optional |= required if row["memory_options_gb"] else {f"{row['memory_nominal_gb']}gb"}
            if not any("sxm" in token for token in required) and "PCIe" in row["pcie"]:
                optional.add("pcie")
            if "sxm" in required:
                optional |= {"hbm2", "hbm2e", "hbm3", "hbm3e"}
            size = frozenset(token for token in required if _SIZE.match(token) and row["memory_options_gb"])
            aliases = [alias | extra for alias in (name, *others) for extra in (frozenset(), size)]
            cards.append(_Card(gpu_id, required, required | optional, tuple(dict.fromkeys(aliases))))
    return tuple(cards)


def _same_but_memory(gpu_id: str) -> list[str]:
    """Other cards that only their memory tells apart from this one."""
    this = next(card for card in _cards() if card.id == gpu_id)
    rest = frozenset(token for token in this.required if not _SIZE.match(token))
    return [
        card.id for card in _cards()
        if card.id != gpu_id and frozenset(token for token in card.required if not _SIZE.match(token)) == rest
    ]  # fmt: skip


def _cut_off(name: str) -> GpuMatch:
    """The one card whose name goes on as `name` begins; a whole name is never cut off. Raises UnknownNameError."""
    begin = re.sub(r"^nvidia\s+", "", _CUT_OFF.sub("", name.strip().lower()))
    found = [row["id"] for row in rows_by_id().values() if row["name"].lower().startswith(f"{begin} ")] if begin else []
    if len(found) != 1:
        raise UnknownNameError("GPU", name, found, "the name is cut off: nvidia-smi -L prints it whole")
    return GpuMatch(gpu_of(found[0]), f'GPU "{clipped(name)}" is cut off and taken as {found[0]}')


def _tokens(text: str) -> frozenset[str]:
    """Words of a name in one spelling: `RTX4070Ti SUPER, 16 GB` is {4070, ti, super, 16gb}."""
    plain = _MARKS.sub(" ", text.lower()).replace("_", "-").replace("max-q", "maxq").replace("with maxq design", "maxq")
    plain = _CORES.sub(r"\1core", _MEMORY.sub(r"\1gb ", _MACS.sub(" ", plain)))
    words: list[str] = []
    for word in re.findall(r"[a-z0-9]+", plain):
        brand = _BRAND_AND_NUMBER.match(word)
        word = _PLURAL.sub(r"\1", brand.group(2) if brand else word)
        split = _NUMBER_AND_SUFFIX.match(word) or _NUMBER_AND_FORM.match(word)
        words += ("ti super" if part == "tisuper" else part for part in split.groups()) if split else [word]
    joined = " ".join("sxm" if re.fullmatch(r"sxm\d", word) else _SAME.get(word, word) for word in words)
    return frozenset(joined.split()) - _FILLER


def _fitting(asked: frozenset[str]) -> tuple[list[str], str]:
    """Ids of the cards that `asked` may mean, the closest ones only, and the words that their ids add to it."""
    best: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for card in _cards():
        missing = card.core - asked
        if asked & card.core and asked <= card.allowed and not any(map(_is_distinct, missing)):
            found = best.setdefault((len(missing), len(asked - card.required)), [])
            found.append((card.id, " ".join(sorted(missing))))
    if not best:
        return [], ""
    closest = sorted(best[min(best)])
    return [gpu_id for gpu_id, _ in closest], closest[0][1]


def _with_memory(asked: frozenset[str]) -> frozenset[str]:
    """The words with a bare number of two or three digits as memory, as in `A100-80`; none where there is no such."""
    numbers = [word for word in asked if word.isdigit() and len(word) in (2, 3)]
    return (asked - {numbers[0]}) | {f"{numbers[0]}gb"} if len(numbers) == 1 and len(asked) > 1 else frozenset()


def _is_distinct(token: str) -> bool:
    """Whether a word of an id stands for another product: it has a number, or is a known suffix."""
    return token in _PRODUCT or any(character.isdigit() for character in token)


def _note(name: str, chosen: str, fitting: list[str], missing: str) -> str | None:
    others = [gpu_id for gpu_id in fitting if gpu_id != chosen]
    if chosen in sized_ids() and others:
        return _sizes_note(name, gpu_of(chosen), others)
    if others:
        return f'GPU "{clipped(name)}" fits several cards: took {chosen} (others: {", ".join(others)})'
    return f'GPU "{clipped(name)}" is taken as {chosen}' if missing else None


def _sizes_note(name: str, gpu: Gpu, others: list[str] | None = None) -> str:
    """The smallest memory was taken, and which there are."""
    sizes = {size for gpu_id in (gpu.id, *(others or ())) for size in (sized_ids().get(gpu_id, ("", 0))[1],) if size}
    *most, last = sorted(sizes if others else gpu.memory_options_gb)
    kinds = f"{', '.join(str(size) for size in most)} or {last} GB"
    shown = clipped(name)
    return f'GPU "{shown}" is sold with {kinds}: took the smallest, {gpu.id}; write the size, as in "{shown} {last}GB"'


@lru_cache(maxsize=64)  # a pasted table of a machine may say one unknown name on every line
def _nearest_ids(name: str) -> list[str]:
    """Ids near a name, compared without the words that all cards of a maker share: of its brand where it says one, its
    number (4090 of 4090ti) and its letters (B200 of B400) before what is spelled alike."""
    by_core: dict[str, str] = {}
    for card in sorted(_cards(), key=lambda card: ("-sxm" not in card.id, card.id)):
        tokens = [token for token in card.id.split("-") if not _VARIANT.match(re.sub(r"sxm\d", "sxm", token))]
        by_core.setdefault("".join(token for token in tokens if token not in _FILLER), card.id)
    core = "".join(token for token in re.findall(r"[a-z0-9]+", _MACS.sub(" ", name.lower())) if token not in _FILLER)
    core = re.sub(rf"^(?:{'|'.join(_BRANDS)})(?=\d)", "", core)
    brand = next((word for word in _BRANDS if re.search(rf"\b{word}(?![a-z])", name.lower())), None)
    if brand is not None:
        by_core = {other: gpu_id for other, gpu_id in by_core.items() if gpu_id.startswith(f"{brand}-")}
    # Equally near names: the one whose number is closer comes first (4900: 4090 before 4060).
    in_order = sorted(by_core, key=lambda other: _number_gap(core, other))
    number, lettered = re.match(r"\d{4}", core), re.match(r"([a-z]{1,2})\d+", core)
    same = [other for other in in_order if number is not None and other.startswith(number[0])]
    if lettered is not None:
        same = [other for other in in_order if re.match(rf"{lettered[1]}\d", other)]
        same = nearest(core, same) or same[:2]
    found = [by_core[other] for other in (*same, *nearest(core, in_order))]
    if brand is not None:
        return list(dict.fromkeys(found))[:3] or [by_core[other] for other in in_order[:3]]
    return list(dict.fromkeys([*found, *nearest(name, rows_by_id())]))[:3]


def _number_gap(core: str, other: str) -> float:
    both = core.isascii() and core.isdigit() and other.isdigit() and len(core) < 10
    return abs(int(core) - int(other)) if both else float("inf")
