"""Whether a checkpoint is made to embed: sentence-transformers' modules.json beside its config.json names a pooling.

vLLM 0.9.2 to 0.33.0 (transformers_utils/config.py get_pooling_config) serves such a checkpoint as an embedder unasked.
"""

from __future__ import annotations

import json

from vramwise.errors import SourceError
from vramwise.formats.ranged import RangedFiles
from vramwise.units import MIB

MODULES = "modules.json"
KEY = "sentence_transformers_pooling"
"""What a config here has of it; no config.json has such a key."""


def with_pooling(config: dict[str, object], files: RangedFiles) -> dict[str, object]:
    """`config` with KEY where the file says so; a file that cannot be read says nothing."""
    if MODULES not in files.files():
        return config
    try:
        modules = json.loads(files.read(MODULES, MIB))
    except (SourceError, ValueError, RecursionError):
        return config
    kinds = [one.get("type") for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    pools = any(str(kind).startswith("sentence_transformers.") and str(kind).endswith(".Pooling") for kind in kinds)
    return {**config, KEY: True} if pools else config
