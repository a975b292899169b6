"""Every kind of operation has its lowering, and every kind is some model's."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import vramwise.models
from vramwise.models import families, layers, operations, towers
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import LOWERINGS, Lowering, Variants, lowering

for package in (operations, layers, towers, families):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)


def kinds(above: type[Operation] = Operation) -> Iterator[type[Operation]]:
    """Classes without classes below them, which are those that models are made of, as their modules name them."""
    for kind in above.__subclasses__():
        if getattr(sys.modules[kind.__module__], kind.__name__, None) is kind:  # and not what dataclass made it of
            below = [*kinds(kind)]
            yield from below or [kind]


KINDS = sorted((k for k in set(kinds()) if k.__module__.startswith("vramwise.models.")), key=lambda kind: kind.__name__)
"""Those of models; what a kernel library's rewrite makes has its lowering in that library's override."""


def test_every_kind_has_its_lowering() -> None:
    assert [kind.__name__ for kind in KINDS if kind not in LOWERINGS] == []


def test_no_two_kinds_have_one_name() -> None:
    assert len({kind.__name__ for kind in KINDS}) == len(KINDS)


def test_every_kind_is_used() -> None:
    """By a layer, tower, family or operation, or by what writes them: it is made or named, not only described."""
    source = Path(vramwise.models.__file__).parent
    written = "\n".join(path.read_text() for path in source.rglob("*.py"))
    described = re.compile(r"^class \w+|@lowering\(\w+\)|op: \w+|^(from|import) .*|^ +[\w, ]+,$", re.MULTILINE)
    used = set(re.findall(r"\b[A-Z]\w+\b", described.sub("", written)))
    assert [kind.__name__ for kind in KINDS if kind.__name__ not in used] == []


def test_a_second_lowering_is_an_error() -> None:
    class Doubled(Operation):
        __slots__ = ()

    def once(run: Lowering, op: Doubled, x: Tensor) -> Tensor:
        return x

    lowering(Doubled)(once)
    try:
        with pytest.raises(ValueError, match="two lowerings of Doubled"):
            lowering(Doubled)(once)
    finally:
        del LOWERINGS[Doubled]


def test_an_unknown_variant_says_what_it_is_not() -> None:
    with pytest.raises(Exception, match="turns of the style sideways is not described"):
        Variants("turns")["sideways"]
