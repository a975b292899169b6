"""Descriptions of models, recorded shapes of their training steps and what is counted of their tensors and graphs
(`memo.of_model`), kept between runs in the user's cache folder.

What takes long about a catalog is to describe its models, to record what their layers keep, to count their tensors and
to play their graphs; none hangs on a card. Answers are never kept. A file holds for one version of vramwise, one state
of its sources and one line of the catalog; a broken or foreign one is as good as none. Classes of this package and the
lowerings of operations alone are read from it, and no other code.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from types import FunctionType
from typing import Any

from vramwise import __version__
from vramwise.errors import VramwiseError
from vramwise.estimation import described_model, remember_model
from vramwise.files import read_at_most, written
from vramwise.memo import kept_of, put_of
from vramwise.models import Block, Model, describe
from vramwise.models.model import facts_of, with_late_blocks
from vramwise.planner.sizes import line_digest
from vramwise.sources import ModelSource, resolve
from vramwise.sources.catalog import names
from vramwise.training.activations.sizes import known_shapes, put_shapes
from vramwise.units import MIB

SWITCH = "VRAMWISE_CACHE"
"""Environment: a folder in place of the user's, or `off`."""
_MOST_BYTES = 32 * MIB
_Part = tuple[int, bytes]
"""Values of a function, how many they are."""
_recalled: dict[str, dict[str, _Part]] = {}
"""What is in the files of models, by the names of functions, and their shapes."""
_SHAPES, _MODEL = "shapes", "model"
_BROKEN = (VramwiseError, OSError, pickle.UnpicklingError, ArithmeticError, LookupError, TypeError, ValueError,
           AttributeError, ImportError, RecursionError, EOFError)  # fmt: skip
_OPERATIONS = "vramwise.models.operations."
_PACKAGE = "vramwise."


def recall(model_id: str) -> None:
    """Take what an earlier run recorded of a model of the catalog, where it is there and was not taken yet."""
    file = None if model_id in _recalled else _file(model_id)
    if file is None or not file.is_file():
        return
    found = resolve(model_id)
    with suppress(*_BROKEN):
        content = read_at_most(file, _MOST_BYTES + 1)
        digest, payload = content[:32], content[32:]
        if len(content) > _MOST_BYTES or sha256(payload).digest() != digest:
            return
        facts, blocks, parts = _read(payload)
        if facts["id"] == found.id and isinstance(parts, dict):
            model = with_late_blocks(facts, partial(_blocks, blocks, found))
            put_shapes(model, _read(parts[_SHAPES][1], model))
            remember_model(found, model)
            put_of(model, {str(name): partial(_values, one) for name, (_, one) in parts.items() if name != _SHAPES})
            _recalled[model_id] = parts


def keep(model_id: str) -> None:
    """Write what this run recorded of a model, unless that is there already; nothing where that cannot be written."""
    file = _file(model_id)
    if file is None:
        return
    with suppress(VramwiseError, OSError, pickle.PicklingError, RecursionError, TypeError, AttributeError):
        model = described_model(model_id)[1]
        before = _recalled.get(model_id, {})
        parts = before | dict(_new_parts(model, before))
        if parts == before:
            return
        payload = _written((facts_of(model), _written(model.blocks), parts))
        if len(payload) > _MOST_BYTES:
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written(file, "wb") as out:
            out.write(sha256(payload).digest() + payload)
        _recalled[model_id] = parts


def _new_parts(model: Model, before: Mapping[str, _Part]) -> Iterator[tuple[str, _Part]]:
    """What functions made of a model, of those that made more than its file holds."""
    for name, values in (*kept_of(model).items(), (_SHAPES, known_shapes(model))):
        if name not in before or len(values) != before[name][0]:
            yield name, (len(values), _written(values, model))


def _values(content: bytes) -> dict[Hashable, object]:
    with suppress(*_BROKEN):
        found = _read(content)
        if isinstance(found, dict):
            return found
    return {}


def _blocks(content: bytes, found: ModelSource) -> tuple[Block, ...]:
    with suppress(*_BROKEN):
        blocks: tuple[Block, ...] = _read(content)
        return blocks
    return describe(found.config, found.id).blocks


def _read(content: bytes, model: Model | None = None) -> Any:
    return _Reader(BytesIO(content), model).load()


def _written(value: object, model: Model | None = None) -> bytes:
    out = BytesIO()
    _Writer(out, model).dump(value)
    return out.getvalue()


class _Writer(pickle.Pickler):
    """Writes what refers to a model without it."""

    def __init__(self, out: BytesIO, model: Model | None) -> None:
        super().__init__(out, 5)
        self._model = model

    def persistent_id(self, one: object) -> str | None:
        return _MODEL if one is self._model and one is not None else None


@contextmanager
def recalled(model: str | Mapping[str, object]) -> Iterator[None]:
    """A model of the catalog by any of its names with what earlier runs recorded; what is new is kept afterwards."""
    known: str | None = None
    with suppress(VramwiseError):
        found = resolve(model, network=False)
        if found.id in names().ids and resolve(found.id).config is found.config:
            known = found.id
            recall(known)
    yield
    if known is not None:
        keep(known)


_found: dict[tuple[str, str], object] = {}
"""Classes and functions of this package that were read before, by their modules and names."""


class _Reader(pickle.Unpickler):
    """Reads classes of descriptions, and the lowerings that operations refer to."""

    def __init__(self, content: BytesIO, model: Model | None = None) -> None:
        super().__init__(content)
        self._model = model

    def persistent_load(self, name: str) -> object:
        if name != _MODEL or self._model is None:
            raise pickle.UnpicklingError(f"{name} is no model")
        return self._model

    def find_class(self, module: str, name: str) -> object:
        found = _found.get((module, name))
        if found is None:
            found = _found[module, name] = self._own(module, name)
        return found

    def _own(self, module: str, name: str) -> object:
        found = super().find_class(module, name) if module.startswith(_PACKAGE) else None
        home = getattr(found, "__module__", "")  # not what a module of ours imports: vramwise.x "subprocess.Popen"
        if isinstance(found, type) and home.startswith(_PACKAGE):
            return found
        if isinstance(found, FunctionType) and home.startswith(_OPERATIONS):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a description")


def _file(model_id: str) -> Path | None:
    folder = _folder()
    return (
        None if folder is None else folder / f"{sha256(model_id.encode()).hexdigest()[:16]}-{line_digest(model_id):08x}"
    )


@cache
def _folder() -> Path | None:
    """Where files of this version and state of the sources lie; None where caching is off."""
    given = os.environ.get(SWITCH, "")
    if given.lower() in ("off", "0", "no"):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(given or os.path.join(base, "vramwise")) / f"shapes-{__version__}-{_state_of_sources()}"


def _state_of_sources() -> str:
    """What changes with every file of the package: a checkout has one version through many states."""
    states = sorted(_states(os.path.dirname(os.path.dirname(__file__))))
    return sha256(repr(states).encode()).hexdigest()[:16]


def _states(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _states(entry.path)
            elif entry.name.endswith((".py", ".csv")):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
