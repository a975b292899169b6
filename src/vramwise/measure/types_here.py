"""Which model types the installed transformers knows, read in its files: importing it imports torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from vramwise.errors import VramwiseError, clipped, nearest

_TABLE: Final = "CONFIG_MAPPING_NAMES"
_FILES: Final = ("auto_mappings.py", "configuration_auto.py")  # the first since transformers 5


def refuse_type_unknown_here(model_type: str) -> None:
    """Raises VramwiseError where the installed transformers has no class for a type; silent where it is not known."""
    known = types_here()
    if known and model_type not in known:
        close = nearest(model_type, sorted(known))
        meant = f": did you mean {', '.join(close)}?" if close else ""
        has = f"transformers {version('transformers')} has no model_type"
        raise VramwiseError(f'{has} "{clipped(model_type)}"{meant}')


def types_here() -> frozenset[str]:
    """The types of `AutoConfig`; none where transformers is not installed or keeps them elsewhere."""
    spec = find_spec("transformers")
    places = (spec.submodule_search_locations if spec is not None else None) or []
    files = [Path(place) / "models" / "auto" / name for place in places for name in _FILES]
    return frozenset(name for file in files if file.is_file() for name in _names_in(file.read_text("utf-8")))


def _names_in(code: str) -> Iterator[str]:
    """Keys of every table that is assigned to, or added to, the mapping of configurations."""
    for node in ast.parse(code).body:
        names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) or _TABLE not in names:
            continue
        for one in ast.walk(node):
            if isinstance(one, ast.Dict):
                yield from (str(key.value) for key in one.keys if isinstance(key, ast.Constant))
            elif isinstance(one, ast.Tuple) and one.elts and isinstance(one.elts[0], ast.Constant):
                yield str(one.elts[0].value)
