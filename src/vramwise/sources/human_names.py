"""Names as people write them: "llama 3.1 8b", "qwen2.5 7b instruct", "deepseek v3"."""

from __future__ import annotations

import math
import re
from functools import cache

from vramwise.errors import nearest
from vramwise.records import record
from vramwise.sources.catalog import lines, names, written_behind_organisation

_WORD = re.compile(r"\d+(?:\.\d+)*[a-z]*|[a-z]+")
_FILLER = frozenset({"hf", "meta", "model"})
# Organisations that publish other people's checkpoints unchanged under the same name.
MIRRORS = frozenset({"unsloth", "nousresearch"})
# Words that say base, and words of what was trained or stored from it; neither makes a name another model's.
_BASE = frozenset({"base", "pt"})
_TUNED = frozenset({"chat", "instruct", "it"})
_MADE_FROM_IT = _TUNED.union(
    ("awq", "bnb", "coder", "distill", "dpo", "fp", "fp8", "gptq", "int", "math"),
    ("mxfp", "nvfp", "reasoning", "sft", "thinking"),
)
_DATE = re.compile(r"2[3-9](?:0[1-9]|1[0-2])")  # year and month, as in Mistral-Small-Instruct-2409
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:[._]\d+)?)([mbt])(?![a-z0-9])", re.IGNORECASE)
_POWERS = {"m": 6, "b": 9, "t": 12}
_USUAL_SIZE = 8e9  # where a name says no size: what most families have nearby and one card holds

Words = tuple[str, ...]


@record
class Match:
    """The model that a name means: its id, the catalog's spelling, and spellings that would have fitted as well."""

    id: str
    spelling: str
    others: tuple[str, ...] = ()


def words_of(name: str) -> Words:
    """Words and numbers of a name in order: `Meta-Llama-3.1-8B` is (llama, 3.1, 8b)."""
    return tuple(word for word in _WORD.findall(name.lower()) if word not in _FILLER)


def find(name: str) -> Match | None:
    """The model that `name` means; None when nothing fits.

    The whole name without organisation comes first, then the names that begin with the first word, hold the others
    in this order and have the fewest words besides. Among several: the base before what was made from it, the
    newest by dates and versions in their names, then the size nearest to 8 billion.
    """
    fitting = written_behind_organisation("-".join(name.lower().split()))
    if not fitting:
        asked = words_of(name)
        if not any(len(word) > 1 and word.isalpha() for word in asked):
            return None
        found = [(_extent(words), spelling) for words, spelling in _spellings() if _holds(words, asked)]
        least = min((extent for extent, _ in found), default=0)
        fitting = [names().exact[spelling.lower()] for extent, spelling in found if extent == least]
    by_id: dict[str, str] = {}
    for model_id, spelling in sorted(fitting, key=_rank) if len(fitting) > 1 else fitting:
        by_id.setdefault(model_id, spelling)
    if not by_id:
        return None
    (model_id, spelling), *others = by_id.items()
    return Match(model_id, spelling, tuple(other for _, other in others))


def base_of_that_size(name: str) -> str | None:
    """What a name of one word and a size would be made from (`vicuna-65b`: LLaMA 65B, as other Vicunas are made from
    other LLaMAs); None where the catalog has nothing like it.
    """
    asked = words_of(name)
    if len(asked) != 2 or size_in_name(asked[1]) is None:
        return None
    for model_id, (_, base) in lines().items():
        own, size = words_of(model_id.rpartition("/")[2]), None if base is None else _SIZE.search(base)
        if base is None or size is None or own[:1] != asked[:1] or words_of(base.rpartition("/")[2])[:1] == asked[:1]:
            continue
        wanted = f"{base[: size.start()]}{asked[1]}{base[size.end() :]}"
        found = names().exact.get(wanted.lower())
        if found is not None:
            return found[0]
    return None


def near(name: str) -> list[str]:
    """Ids near `name`, compared with and without organisation."""
    short_names = {spelling.partition("/")[2] or spelling: spelling for spelling in _written()}
    wanted = name.rpartition("/")[2] or name
    found = [short_names[one] for one in nearest(wanted, short_names)]
    return list(dict.fromkeys(names().exact[one.lower()][0] for one in found))


def size_in_name(name: str) -> float | None:
    """Parameters that a name states: 8e9 of Qwen3-8B, 56e9 of Mixtral-8x7B; None where it says nothing."""
    found = _SIZE.search(name)
    if found is None:
        return None
    experts, number, unit = found.groups()
    return int(experts or 1) * float(number.replace("_", ".")) * 10.0 ** _POWERS[unit.lower()]


def _written() -> list[str]:
    return [written for _, written in names().exact.values()]


@cache
def _spellings() -> tuple[tuple[Words, str], ...]:
    return tuple((words_of(spelling.partition("/")[2]), spelling) for spelling in _written())


def _holds(words: Words, asked: Words) -> bool:
    """Whether `words` begin with the first word asked for and hold the others in this order."""
    rest = iter(words)
    return words[:1] == asked[:1] and all(word in rest for word in asked)


def _extent(words: Words) -> int:
    """Words that tell a model from others of its family: no numbers, and none that say how far it was trained."""
    return sum(word.isalpha() and word not in _BASE and word not in _TUNED for word in words)


def _rank(name: tuple[str, str]) -> tuple[bool, int, tuple[float, ...], float, bool, str]:
    """What is taken first among spellings that fit alike: see `find`. An id comes before its aliases."""
    model_id, spelling = name
    words = words_of(spelling.partition("/")[2])
    numbers = [word for word in words if word.replace(".", "", 1).isdigit()]
    date = max((int(word) for word in numbers if _DATE.fullmatch(word)), default=0)
    versions = tuple(-float(word) for word in numbers if not _DATE.fullmatch(word))
    size = size_in_name(spelling)
    distance = abs(math.log(size / _USUAL_SIZE)) if size else math.inf
    return bool(_MADE_FROM_IT.intersection(words)), -date, versions or (0.0,), distance, model_id != spelling, spelling
