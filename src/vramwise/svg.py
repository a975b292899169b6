"""Pictures as SVG text: what every writer of a picture shares. Text is escaped here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from vramwise.errors import printable

OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Told apart with any colour vision (Okabe and Ito 2008)."""
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
"""What no XML file may hold beside control characters: halves of pairs, and what is no character."""


def document(
    width: int,
    height: int,
    parts: Iterable[str],
    *,
    title: str = "",
    font: str = "sans-serif",
    font_size: int = 12,
    fixed: bool = True,
    ground: str = "#fff",
) -> str:
    """A whole picture; `fixed`: of this size, else as wide as the page that shows it; `ground` may be none."""
    size = f' width="{width}" height="{height}"' if fixed else ""
    under = f'<rect width="{width}" height="{height}" fill="{ground}"/>\n' if ground else ""
    named = f"<title>{_words(title)}</title>" if title else ""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"{size} '
        f'font-family="{font}" font-size="{font_size}">{named}\n{under}{body}\n</svg>\n'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: int | None = None,
    fill: str = "",
    bold: bool = False,
    length: float | None = None,
) -> str:
    """A line of text, its baseline at y; `length` is what it is stretched to."""
    styled = f' font-size="{size}"' if size else ""
    styled += f' fill="{fill}"' if fill else ""
    styled += ' font-weight="bold"' if bold else ""
    styled += f' textLength="{length:g}"' if length is not None else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{styled}>{_words(words)}</text>'


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    *,
    title: str = "",
    opacity: float = 1.0,
    stroke: str = "",
    radius: float = 0,
) -> str:
    """A rectangle; `title` is what a pointer over it shows."""
    styled = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
    styled += f' stroke="{stroke}"' if stroke else ""
    styled += f' rx="{radius:g}"' if radius else ""
    start = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{styled}'
    return f"{start}><title>{_words(title)}</title></rect>" if title else f"{start}/>"


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = "#ddd", *, width: float = 1, dash: str = "") -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    thick = f' stroke-width="{width:g}"' if width != 1 else ""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{stroke}"{thick}{dashed}/>'


def path(
    points: Sequence[tuple[float, float]], stroke: str, *, width: float = 1, dash: str = "", more: str = ""
) -> str:
    """A line through points; `more` are further attributes."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    through = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{through}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{dashed}{more}/>'


def area(points: Sequence[tuple[float, float]], fill: str, *, title: str = "") -> str:
    """A filled polygon."""
    named = f"<title>{_words(title)}</title>" if title else ""
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="{fill}">{named}</polygon>'


def _words(text: str) -> str:
    """Foreign text as XML may hold it; with anything else in it a picture cannot be written or read."""
    return escape(_NO_XML.sub("?", printable(text)))
