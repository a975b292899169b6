"""Writes the page's colours from the table that all pictures share: `python tools/site/colours.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from vramwise.colours import NEW_NAMES, NUMBER_OF_TERM, TERMS, VERDICTS

PAGE = Path(__file__).parents[2] / "src" / "vramwise" / "web" / "page"
_FROM = "Written from src/vramwise/colours.py by tools/site/colours.py."
_VARIABLES = {"fits": "fits", "tight": "tight", "does not fit": "no"}
_DARK_BY_CHOICE = ':root[data-theme="dark"]'
_DARK_BY_SYSTEM = ':root:not([data-theme="light"])'


def files() -> dict[str, str]:
    """The text of each file by its name."""
    return {"colours.css": "\n".join(_sheet()) + "\n", "colours.js": _module()}


def _sheet() -> Iterator[str]:
    yield f"/* {_FROM} */"
    yield f":root {{ {_values(0)} }}"
    yield f"@media screen {{ {_DARK_BY_CHOICE} {{ {_values(1)} }} }}"
    yield f"@media screen and (prefers-color-scheme: dark) {{ {_DARK_BY_SYSTEM} {{ {_values(1)} }} }}"
    for i in range(len(TERMS)):
        yield f".c{i} {{ fill: var(--c{i}); background-color: var(--c{i}); }}"


def _values(ground: int) -> str:
    verdicts = [f"--{_VARIABLES[word]}: {both[ground]};" for word, both in VERDICTS.items()]
    return " ".join([*verdicts, *(f"--c{i}: {both[ground]};" for i, both in enumerate(TERMS))])


def _module() -> str:
    known = json.dumps(NUMBER_OF_TERM, indent=2)
    return (
        f"/* {_FROM} */\n\nconst NUMBER_OF_TERM = {known};\nconst NEW_NAMES = {json.dumps(list(NEW_NAMES))};\n\n"
        "/* The same term has the same colour in every picture; names that are new take one by their letters. */\n"
        "export function colourOf(name) {\n"
        "  if (name in NUMBER_OF_TERM) return NUMBER_OF_TERM[name];\n"
        "  let letters = 0;\n"
        "  for (const letter of name) letters = (letters * 31 + letter.codePointAt(0)) % 997;\n"
        "  return NEW_NAMES[letters % NEW_NAMES.length];\n"
        "}\n"
    )


def main() -> None:
    """Write both."""
    for name, text in files().items():
        (PAGE / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
