"""Names that the catalog answers to: as they stand in it, as people write them, and with a quantization behind them.

Names as people write them: "llama 3.1 8b", "qwen2.5 7b instruct", "deepseek v3".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache, partial

from vramwise.errors import Doubt, SourceError, clipped, in_one, nearest
from vramwise.records import record
from vramwise.sources.catalog import entry, lines, names, written, written_behind_organisation
from vramwise.sources.repository import ModelSource

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
_FORMATS = frozenset({"bf", "fp", "int", "mxfp", "nvfp", "q", "w"})  # a number behind these says bits: no version
_DATE = re.compile(r"2[3-9](?:0[1-9]|1[0-2])")  # year and month, as in Mistral-Small-Instruct-2409
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:[._]\d+)?)([mbt])(?![a-z0-9])", re.IGNORECASE)
_POWERS = {"m": 6, "b": 9, "t": 12}
_SHORTEST = 4  # letters and numbers by which a name run together can be told
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
    newest by dates and versions in their names, then the size nearest to 8 billion. A name without the words for chat
    comes before one with words that nobody asked for.
    """
    fitting = written_behind_organisation("-".join(name.lower().split()))
    if not fitting:
        asked = words_of(name)
        if not any(len(word) > 1 and word.isalpha() for word in asked):
            return None
        found = [(_extent(words), spelling) for words, spelling in _spellings() if _holds(words, asked)]
        least = min((extent for extent, _ in found), default=0)
        if least > _extent(asked) and (plain := _untuned(name)) is not None:
            return plain
        fitting = [names().exact[spelling.lower()] for extent, spelling in found if extent == least]
    by_id: dict[str, str] = {}
    for model_id, spelling in sorted(fitting, key=_rank) if len(fitting) > 1 else fitting:
        by_id.setdefault(model_id, spelling)
    if not by_id:
        return None
    (model_id, spelling), *others = by_id.items()
    return Match(model_id, spelling, tuple(other for _, other in others))


def _untuned(name: str) -> Match | None:
    """The model that a name means without its words for chat, where these are all that none has: Qwen3-8B-Instruct is
    Qwen3-8B, which answers as it is, rather than Qwen3-VL-8B-Instruct."""
    parts = re.split(r"[\s_-]+", name)
    plain = [part for part in parts if part.lower() not in _TUNED]
    match = find("-".join(plain)) if plain and plain != parts else None
    if match is None:
        return None
    has_more = _extent(words_of(match.spelling.partition("/")[2])) > _extent(words_of(name))
    return None if has_more else match


def spelled_alike(short: str) -> tuple[str, str] | None:
    """Id and spelling of the name that has the same letters and numbers, however they are parted (Qwen3VL-8B-Instruct).

    `meta` before and `hf` behind a name tell nothing apart. Among several the one that `find` would take.
    """
    wanted = _run_together(words_of(short))
    found = [names().exact[spelling.lower()] for words, spelling in _spellings() if _run_together(words) == wanted]
    return min(found, key=_rank) if found and len(wanted) > _SHORTEST else None


def _run_together(words: Words) -> str:
    return "".join(words)


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
    """Ids near `name`: what it would mean with its first word spelled as known names are, or without its size; then
    names that look alike, compared with and without organisation."""
    short_names = {spelling.partition("/")[2] or spelling: spelling for spelling in _written()}
    wanted = name.rpartition("/")[2] or name
    found = [short_names[one] for one in nearest(wanted, short_names)]
    alike = [names().exact[one.lower()][0] for one in found]
    return list(dict.fromkeys([*_meant_by(wanted), *_pipelines_near(wanted, bool(alike)), *alike]))[:_NEAR]


def _pipelines_near(short: str, has_others: bool) -> list[str]:
    """Pipelines of images that begin with a name's first word, or the first two where models of text begin with it too;
    else, where nothing else is near, that look alike."""
    from vramwise.sources.pipelines import pipeline_names

    by_short = {name.rpartition("/")[2].lower(): name for name in pipeline_names()}
    words = words_of(short)
    first = words[:2] if not _families().isdisjoint(words[:1]) else words[:1]
    long_enough = len("".join(first[:1])) >= _SHORTEST
    begin = [name for other, name in by_short.items() if long_enough and words_of(other)[: len(first)] == first]
    return begin or ([] if has_others else [by_short[one] for one in nearest(short.lower(), by_short)])


@cache
def _families() -> frozenset[str]:
    """The first words of all names."""
    return frozenset(words[0] for words, _ in _spellings() if words)


def _meant_by(short: str) -> Iterator[str]:
    """The model that a name would mean with a known first word, else the one of that family nearest to its size."""
    first, *rest = words_of(short) or ("",)
    known_first = first if first in _families() else next(iter(nearest(first, sorted(_families()), 1)), None)
    if known_first is None or len(first) < _SHORTEST:
        return
    for words in ((known_first, *rest), (known_first, *(word for word in rest if size_in_name(word) is None))):
        match = find(" ".join(words)) if words != (first, *rest) else None
        if match is not None:
            size = size_in_name(short)
            every = [match.id, *match.others]
            yield min(every, key=partial(_size_gap, size)) if size is not None and len(words) <= len(rest) else match.id
            return


def _size_gap(size: float, name: str) -> float:
    own = size_in_name(name)
    return abs(math.log(own / size)) if own else math.inf


def _closed(name: str) -> bool:
    """Whether a name is that of a model whose weights nobody publishes."""
    return _CLOSED.match(name.rpartition("/")[2]) is not None


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
    """Words of every name; those that begin with their maker (nvidia/NVIDIA-Nemotron-3-…) without that word as well."""
    every = [(words_of(spelling.partition("/")[2]), spelling) for spelling in _written()]
    first = {words[0] for words, _ in every if words}
    named_twice = (one for one in every if one[0][:1] == words_of(one[1].partition("/")[0]))
    return (*every, *((words[1:], spelling) for words, spelling in named_twice if not first.isdisjoint(words[1:2])))


def _holds(words: Words, asked: Words) -> bool:
    """Whether `words` begin with the first word asked for and hold the others in this order.

    A number behind the first word is a version, and another one there another model's (Llama 5 is no Llama 3.3 v1.5).
    """
    if words[:1] != asked[:1] or (_is_version(words[1:2]) and _is_version(asked[1:2]) and words[1] != asked[1]):
        return False
    rest = iter(_with_bits(words))
    return all(word in rest for word in _with_bits(asked))


def _is_version(words: Words) -> bool:
    return bool(words) and words[0].replace(".", "").isdigit()


def _with_bits(words: Words) -> list[str]:
    """Words, a format and its bits as one: the 4 of Int4 is not that of Hunyuan 4."""
    found: list[str] = []
    for word in words:
        if found and found[-1] in _FORMATS and word[0].isdigit():
            found[-1] += word
        else:
            found.append(word)
    return found


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


HINT = "vramwise models lists all; a folder or config.json also works"
_LISTED = 6
_NEAR = 3
_CLOSED = re.compile(r"(?:chatgpt|gpt-?(?:3|4|5)|o[134](?:-|$)|claude|gemini)", re.IGNORECASE)
_PLAIN = "-BF16"  # behind the names of checkpoints whose organisation says every format (NVIDIA-Nemotron-3-Nano-…-BF16)
_FORMATS_IN_NAMES = frozenset({"FP8", "NVFP4", "MXFP4", "FP4", "AWQ", "GPTQ"})


@lru_cache(maxsize=512)
def known(name: str) -> ModelSource | None:
    """A name of the catalog: an id, an alias, or another owner's name for it, without regard to letter case."""
    found = written(name)
    return _from_catalog(*found) if found is not None else _twin(name)


def _twin(name: str) -> ModelSource | None:
    from vramwise.sources.twins import twin_of

    twin = twin_of(name)
    if twin is None:
        return None
    source = _from_catalog(twin.id, twin.spelling)
    said = f"{name} is {twin.spelling}" if twin.same else f"{name}: sizes of {twin.spelling}, the same architecture"
    return replace(source, id=source.id if twin.same else name, note=in_one(said, source.note))


def by_name(name: str) -> ModelSource:
    """A name of the catalog, or one as people write it. Raises SourceError with the nearest names."""
    found = known(name) or meant(name)
    if found is None:
        raise unknown(name, HINT)
    return found


def is_repository_of_its_own(name: str) -> bool:
    """Whether ORG/NAME may be another model than the one of the catalog that its name recalls.

    Organisations that publish other people's checkpoints unchanged say whose they are.
    """
    org, _, short = name.rpartition("/")
    return bool(org) and not (org.lower() in MIRRORS and written_behind_organisation(short))


@lru_cache(maxsize=512)
def meant(name: str) -> ModelSource | None:
    """The model of the catalog that a name means, None where it means none."""
    org, _, short = name.rpartition("/")
    match = find(short) if not org or org.lower() in MIRRORS else None
    if match is None and not org:
        alike = spelled_alike(short)
        match = Match(*alike) if alike is not None else None
    if match is None:
        return _quantized(name) or (None if org else _of_that_size(name))
    source = _from_catalog(match.id, match.spelling)
    return replace(source, note=in_one(_taken(name, match), source.note), others=match.others)


def _taken(name: str, match: Match) -> Doubt | None:
    """What was chosen where the name left a choice."""
    if match.others:
        shown = ", ".join(match.others[:_LISTED]) + (", …" if len(match.others) > _LISTED else "")
        return Doubt(f'"{clipped(name)}" fits several models: took {match.spelling} (others: {shown})')
    short = name.rpartition("/")[2]
    exact = match.spelling.partition("/")[2].lower() == "-".join(short.lower().split())
    return None if exact and short == name else Doubt(f'"{clipped(name)}" taken as {match.spelling}')


def unknown(name: str, hint: str) -> SourceError:
    """The error for a name that nothing answers to."""
    if _closed(name):
        return SourceError(f'unknown model "{clipped(name)}": its weights are not published, so that nobody can run it')
    close = near(name)
    meant = f": did you mean {', '.join(close)}?" if close else ""
    return SourceError(f'unknown model "{clipped(name)}"{meant}  ({hint})')


def _quantized(name: str) -> ModelSource | None:
    """A name that is a known model's with the format of its weights behind it, whoever published it."""
    from vramwise.sources.quantized_names import base_of

    found = base_of(name)
    if found is None:
        return None
    base, words, table = found
    base_model = known(base) or known(f"{base}{_PLAIN}")
    if base_model is None:
        short = base.rpartition("/")[2]
        plain = *written_behind_organisation(short), *written_behind_organisation(f"{short}{_PLAIN}")
        named = next(iter(plain), None) or spelled_alike(short)
        base_model = _from_catalog(*named) if named else None
    if base_model is None:
        return None
    config = {key: value for key, value in base_model.config.items() if key != "quantization_config"}
    if table:
        from vramwise.formats.quantization_config import AS_NAMED

        config["quantization_config"] = {**table, AS_NAMED: True} if "quant_method" in table else table
    note = f"{clipped(name)}: sizes of {base_model.id} with {words}, as its name says"
    return replace(base_model, id=name, config=config, note=note)


def _of_that_size(name: str) -> ModelSource | None:
    """A size that no model of that name has, where the others are made from another family that has it."""
    base = base_of_that_size(name)
    if base is None:
        return None
    note = f'no "{clipped(name)}" is known: took {base}, of the family and size that it would be made from'
    return replace(_from_catalog(base, base), note=note, stands_in=True)


def _from_catalog(model_id: str, spelling: str) -> ModelSource:
    found = entry(model_id)
    note = f"{spelling}: sizes of {found.like}, the same architecture" if found.like else None
    stored = next((word for word in spelling.split("-")[1:] if word.upper() in _FORMATS_IN_NAMES), None)
    if stored is not None and "quantization_config" not in found.hyperparameters:
        note = (
            f"the name says {stored}, but what is known of {spelling} says no format: its weights are counted in 16 "
            "bits, which is too much; name its folder or config.json, with hf_quant_config.json beside it"
        )
    return ModelSource(spelling, found.hyperparameters, f"catalog: {found.source}", note)
