"""What has a colour in pictures of an answer: the verdict's words and its terms, the same on the page and in files.

The page's `colours.css` and `colours.js` are written from here (`python tools/site/colours.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

VERDICTS: Final = {
    "fits": ("#17653a", "#7fd3a0"),
    "tight": ("#7d4e00", "#e9bd66"),
    "does not fit": ("#a3261f", "#f29a90"),
}
"""A verdict's word: its colour on a light ground and on a dark one (4.5 : 1 or more; white on the first reads too)."""
TERMS: Final = (
    ("#3a5f9e", "#7097d6"), ("#d08a2e", "#dc9c48"), ("#2b8a84", "#45aaa2"), ("#c0533b", "#d9745c"),
    ("#5d8b52", "#7daf70"), ("#8064a8", "#a189cb"), ("#b4578b", "#cd7aa7"), ("#d8b265", "#d8bd82"),
    ("#8b929c", "#8d959f"), ("#a3957f", "#b3a690"),
)  # fmt: skip
"""Colours of terms, light and dark."""
NUMBER_OF_TERM: Final = {
    "weights": 0, "model weights": 0, "activations": 1, "activation peak": 1, "warm-up prefill": 1, "KV cache": 2,
    "gathered weights": 2, "whole weights": 2, "master weights": 2, "logits and loss": 3, "profile run: sampler": 3,
    "optimizer states": 4,
    "sampler state": 4, "runtime pool": 4, "gradients": 5, "gradient buckets": 9, "fp32 gradients": 6,
    "gradients as one": 7, "unsharded gradients": 9, "reduce-scatter": 6, "adapters": 6, "non-torch": 6,
    "forward temporaries": 7, "backward temporaries": 7, "compute buffer": 7, "NCCL": 7, "dummy gradients": 3,
    "CUDA context": 8, "library workspace": 9, "library workspaces": 9, "CUDA graphs": 9, "other": 8,
}  # fmt: skip
"""The colour of a term: large ones that stand side by side have different ones."""
NEW_NAMES: Final = (3, 4, 5, 6, 7, 9)
"""What a name that stands in no table takes one of, by its letters."""


def verdict_colour(word: str) -> str:
    """On a light ground."""
    return VERDICTS[word][0]


def term_number(name: str) -> int:
    """Which of `TERMS` a term has."""
    if name in NUMBER_OF_TERM:
        return NUMBER_OF_TERM[name]
    letters = 0
    for letter in name:
        letters = (letters * 31 + ord(letter)) % 997
    return NEW_NAMES[letters % len(NEW_NAMES)]


def term_colours(names: Sequence[str]) -> dict[str, str]:
    """Colours of the terms of one picture, none twice: the first name keeps its own, a later one takes a free one."""
    free = list(range(len(TERMS)))
    taken = {}
    for name in names:
        own = term_number(name)
        number = own if own in free else free[0] if free else own
        if number in free:
            free.remove(number)
        taken[name] = TERMS[number][0]
    return taken
