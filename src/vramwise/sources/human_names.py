"""Names as people write them: "llama 3.1 8b", "qwen2.5 7b instruct", "deepseek v3"."""

from __future__ import annotations

import re
from functools import cache

from vramwise.errors import nearest
from vramwise.sources.catalog import entry, names

_WORD = re.compile(r"\d+(?:\.\d+)*[a-z]*|[a-z]+")
_FILLER = frozenset({"hf", "meta", "model"})
# Organisations that publish other people's checkpoints unchanged under the same name.
MIRRORS = frozenset({"unsloth", "nousresearch"})

Words = tuple[str, ...]


class Ambiguous(Exception):
    """Several different models fit a name; `ids` are they."""

    def __init__(self, ids: list[str]) -> None:
        super().__init__(", ".join(ids))
        self.ids = ids


def words_of(name: str) -> Words:
    """Words and numbers of a name in order: `Meta-Llama-3.1-8B` is (llama, 3.1, 8b)."""
    return tuple(word for word in _WORD.findall(name.lower()) if word not in _FILLER)


def find(name: str) -> tuple[str, str] | None:
    """The id that `name` means and the catalog's spelling that it matched; None when nothing fits.

    The whole name without organisation comes first, then the shortest
    name that begins with the first word and holds the others in this order. Raises `Ambiguous` when
    several models fit equally well.
    """
    short = "-".join(name.lower().split())
    same_name = _by_short_name().get(short)
    if same_name:
        return _only(same_name)
    asked = words_of(name)
    if not any(len(word) > 1 and word.isalpha() for word in asked):
        return None
    fitting = [(len(words), spelling) for words, spelling in _spellings() if _holds(words, asked)]
    if not fitting:
        return None
    least = min(length for length, _ in fitting)
    return _only([spelling for length, spelling in fitting if length == least], [one for _, one in fitting])


def names_of(short: str) -> list[str]:
    """The catalog's spellings that are this name behind their organisation, without regard to letter case."""
    return _by_short_name().get(short.lower(), [])


def near(name: str) -> list[str]:
    """Ids near `name`, compared with and without organisation."""
    short_names = {spelling.partition("/")[2] or spelling: spelling for spelling in _written()}
    wanted = name.rpartition("/")[2] or name
    found = [short_names[one] for one in nearest(wanted, short_names)]
    return list(dict.fromkeys(names().exact[one.lower()][0] for one in found))


def _written() -> list[str]:
    return [written for _, written, _ in names().exact.values()]


@cache
def _by_short_name() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for spelling in _written():
        found.setdefault(spelling.partition("/")[2].lower(), []).append(spelling)
    return found


@cache
def _spellings() -> tuple[tuple[Words, str], ...]:
    return tuple((words_of(spelling.partition("/")[2]), spelling) for spelling in _written())


def _holds(words: Words, asked: Words) -> bool:
    """Whether `words` begin with the first word asked for and hold the others in this order."""
    rest = iter(words)
    return words[:1] == asked[:1] and all(word in rest for word in asked)


def _only(spellings: list[str], all_fitting: list[str] | None = None) -> tuple[str, str]:
    """The one model among equally good spellings; a base form may stand for its own variants."""
    exact = names().exact
    ids = list(dict.fromkeys(exact[spelling.lower()][0] for spelling in spellings))
    if len(ids) > 1:
        sizes = {repr(entry(model_id).hyperparameters) for model_id in ids}
        if len(sizes) > 1:
            every = [exact[spelling.lower()] for spelling in all_fitting or spellings]
            own = [model_id for model_id, _, is_variant in every if not is_variant]
            raise Ambiguous(sorted(dict.fromkeys([*ids, *own]), key=lambda one: (one not in ids, one)))
    named = [spelling for spelling in spellings if not exact[spelling.lower()][2]]
    chosen = min(named or spellings, key=lambda spelling: (spelling not in ids, spelling))
    return exact[chosen.lower()][0], chosen
