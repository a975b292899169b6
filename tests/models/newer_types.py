"""Types whose classes only a newer transformers has than the one that tests install; with that one they are run too.

pip install --no-deps --target FOLDER transformers==5.24.0
PYTHONPATH=FOLDER:src pytest tests/models -k dory
"""

from __future__ import annotations

from collections.abc import Iterable

import transformers

SINCE = dict.fromkeys(("apertus1p5_text", "dory", "hy_v4_vl", "lara_mini"), "5.24")
"""Type -> the version that brought it."""


def missing(model_type: str) -> str:
    """Why the type cannot be run here, empty where it can."""
    absent = model_type in SINCE and model_type not in transformers.CONFIG_MAPPING
    return f"transformers {SINCE[model_type]}" if absent else ""


def installed(model_types: Iterable[str]) -> list[str]:
    """Those whose class is there, sorted."""
    return sorted(name for name in model_types if not missing(name))
