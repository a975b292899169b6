"""The language of what a person reads: English as the program says it, or the texts of a catalog in its place.

A catalog (`web/page/i18n/sentences.LANGUAGE.json`) has English texts as its keys, with names in braces for what differs
from case to case; names of moments, terms and counters are those of the page's own texts. A text that it lacks stays
English, so that nothing is ever lost; commands, keys, names and JSON are the same in every language.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from vramwise.errors import UsageError, clipped, printable, without_passwords

_SIGNS = {"en": "", "zh": "显存"}
LANGUAGES = tuple(_SIGNS)
VARIABLE = "VRAMWISE_LANG"
FLAG = "--lang"
_PAGE_GROUPS = ("task", "quantity", "word", "term", "moment")
# patterns are texts here: compiling them takes 4 ms, and only another language than English needs them
_FIELDS = r"(?<=\S)( {2,})(?=\S)"
_FIGURES = r"[\d.,]+"
_KEPT = frozenset({"choices", "task", "task2"})
"""Names in braces for what is written as it is in every language: values of a key, commands, names of models."""
_WORDS = r"(?:(?! · )[^;])+?"
_ASIDE = r"([^();]*[^(); ]) {0,2}\((.+)\)"
_NAMED = r"{\w+}"
_HOLE = r"\\{(\w+)\\}"
_NAME_AND_FIGURES = r"(?P<sign>[█▓▒░▚▞] )?(?P<name>[^\d(–−]*[^\s\d(–−])(?P<figures>:| [\d(–−<×%./]?[\d.,()–−×%/: ]*)"
_BETWEEN = {" · ": " · ", "; ": "；", "   ": "   ", ": ": "：", ", ": "，"}
_WITHIN_A_SENTENCE = frozenset({": ", ", "})
_ENGLISH = r"(?<![\w-])[a-z]{2,}(?![\w.=-])"
_PIECES = r"[\u2e80-\u9fff\uff00-\uffef]|[^\u2e80-\u9fff\uff00-\uffef]+"
_LONGEST = 1_000
"""Characters of a text that is looked up; longer ones are not this program's own sentences."""
_chosen = "en"


class AsIs(str):
    """A name that somebody gave, or a line with one in it: the same in every language."""

    __slots__ = ()


class _Catalog(NamedTuple):
    texts: Mapping[str, str]
    patterns: Sequence[tuple[re.Pattern[str], str]]
    help: Mapping[str, str]


def choose(arguments: Sequence[str]) -> list[str]:
    """Take the language from `--lang` or the environment; the other arguments.

    Raises UsageError for a language without a catalog.
    """
    global _chosen
    own = list(arguments)
    end = own.index("--") if "--" in own else len(own)
    named, given = VARIABLE, os.environ.get(VARIABLE, "").strip().lower() or "en"
    for place in range(end):
        flag, equals, value = own[place].partition("=")
        if flag == FLAG:
            named, given = FLAG, value if equals else own[place + 1] if place + 1 < end else ""
            del own[place : place + (1 if equals else 2)]
            break
    language = given.split(".")[0].replace("_", "-").split("-")[0].lower() if given else ""
    if language not in LANGUAGES:
        raise UsageError(f'{named} "{clipped(given)}" is no language that vramwise speaks: {", ".join(LANGUAGES)}')
    _chosen = language if _can_print(language) else "en"
    return own


def _can_print(language: str) -> bool:
    """Whether standard output takes the language's signs; one that does not is spoken to in English."""
    try:
        _SIGNS[language].encode(sys.stdout.encoding or "utf-8")
    except (AttributeError, LookupError, UnicodeEncodeError):
        return False
    return True


def is_translated() -> bool:
    """Whether texts are looked up at all."""
    return _chosen != "en"


def said(text: str) -> str:
    """A text in the chosen language, as far as the catalog has it."""
    if not is_translated() or isinstance(text, AsIs) or not text.strip():
        return text
    if len(text) > _LONGEST:
        return text
    body = text.strip()
    before, after = text[: text.index(body[0])], text[len(text.rstrip()) :]
    return before + _said(_chosen, body) + after


def said_line(line: str, columns: int | None = None) -> str:
    """A line whose fields stand two or more spaces apart, each in the chosen language and where it stood before.

    `columns`: fields behind so many columns follow the one before at its distance instead.
    """
    if not is_translated() or isinstance(line, AsIs):
        return line
    if line.endswith("\\") and " vramwise " not in line:  # flags of a command that began above
        return line
    pieces = re.split(_FIELDS, line)
    translated = [said(piece) for piece in pieces[::2]]
    if translated == pieces[::2]:
        return line
    made, place = translated[0], cells(pieces[0])
    for gap, field, before in zip(pieces[1::2], translated[1:], pieces[2::2], strict=True):
        place += len(gap)
        in_columns = columns is None or place <= columns
        made += " " * (max(2, place - cells(made)) if in_columns else len(gap)) + field
        place += cells(before)
    return made


def cells(text: str) -> int:
    """Columns that a text takes on a terminal: signs of East Asia take two."""
    if text.isascii() or not is_translated():
        return len(text)
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def padded(text: str, width: int) -> str:
    """A text with spaces behind it up to `width` columns."""
    return text + " " * (width - cells(text))


def help_said(key: str, text: str) -> str:
    """The help of a flag in the chosen language; that of a scenario's key is the page's."""
    return _catalog(_chosen).help.get(key) or said(text) if is_translated() else text


def broken(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns."""
    lines = [""]
    for word, gap in _words(text):
        if lines[-1] and cells(lines[-1]) + len(gap) + cells(word) > width:
            lines.append("")
        lines[-1] += (gap if lines[-1] else "") + word
    return lines


def _words(text: str) -> list[tuple[str, str]]:
    """The pieces of a text between which a line may end, each with what stands before it on the same line."""
    if not is_translated():
        return [(word, " ") for word in text.split()]
    found: list[tuple[str, str]] = []
    for word in text.split():
        gap = " "
        for piece in re.findall(_PIECES, word):
            if found and not gap and piece[0] in "，。；：、）！？」%":
                found[-1] = (found[-1][0] + piece, found[-1][1])
            else:
                found.append((piece, gap))
            gap = ""
    return found


@lru_cache(maxsize=4_096)
def _said(language: str, text: str) -> str:
    catalog = _catalog(language)
    if text in catalog.texts:
        return catalog.texts[text]
    if text.startswith(("vramwise ", "$ ", "= ")):
        return text
    for pattern, template in catalog.patterns:
        found = pattern.fullmatch(text)
        if found:
            pieces = found.groupdict().items()
            return template.format(**{name: value if name in _KEPT else said(value) for name, value in pieces})
    aside = re.fullmatch(_ASIDE, text)
    if aside and said(aside[2]) != aside[2]:
        return f"{said(aside[1])}（{said(aside[2])}）"
    figures = re.fullmatch(_NAME_AND_FIGURES, text)
    if figures and figures["name"] in catalog.texts:
        return (figures["sign"] or "") + catalog.texts[figures["name"]] + figures["figures"]
    for between, theirs in _BETWEEN.items():
        if between in text:
            parts = text.split(between)
            told = [said(part) for part in parts]
            if between not in _WITHIN_A_SENTENCE or not any(map(_is_left_english, parts, told)):
                return theirs.join(told)
    return text


def _is_left_english(part: str, told: str) -> bool:
    """Whether words of a sentence are left, rather than a name, a setting or figures."""
    return part == told and len(re.findall(_ENGLISH, part)) > 1


@cache
def _catalog(language: str) -> _Catalog:
    import json
    from importlib.resources import files

    folder = files("vramwise") / "web" / "page" / "i18n"
    page: dict[str, str] = json.loads((folder / f"{language}.json").read_text("utf-8"))
    own: dict[str, str] = json.loads((folder / f"sentences.{language}.json").read_text("utf-8"))
    names = {key.partition(".")[2]: text for key, text in page.items() if key.partition(".")[0] in _PAGE_GROUPS}
    texts = names | {text: other for text, other in own.items() if "{" not in text}
    most_specific_first = sorted((text for text in own if "{" in text), key=lambda text: -len(re.sub(_NAMED, "", text)))
    helps = {key.rpartition(".")[2]: text for key, text in page.items() if key.startswith("help.")}
    return _Catalog(texts, [(_pattern(text), own[text]) for text in most_specific_first], helps)


def _pattern(text: str) -> re.Pattern[str]:
    """What a text with names in braces stands for: figures for `{n}`, else what has nothing that parts a text."""
    return re.compile(re.sub(_HOLE, _value, re.escape(text)))


def _value(hole: re.Match[str]) -> str:
    return f"(?P<{hole[1]}>{_FIGURES if hole[1] in ('n', 'n2') else _WORDS})"


def complain(problem: str) -> None:
    """Print what went wrong: one line on stderr, without control characters and passwords."""
    with contextlib.suppress(OSError):  # nobody reads stderr either: the exit code still tells
        line = without_passwords(printable(" ".join(problem.splitlines())))
        print(f"vramwise: {said(line)}", file=sys.stderr, flush=True)
