"""PyTorch's own weight files, pickles that are never opened: their size, from the list of files or from their index.

What quantized a checkpoint, where a file beside its config.json says it.

ModelOpt writes `hf_quant_config.json` (vLLM 0.33.0 transformers_utils/config.py reads it where the config is silent),
AutoGPTQ and AutoAWQ wrote `quantize_config.json` and `quant_config.json` (vLLM auto_gptq.py, auto_awq.py
get_config_filenames).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from vramwise.errors import SourceError
from vramwise.formats.ranged import RangedFiles, shown_in
from vramwise.formats.safetensors import LARGEST_HEADER_BYTES
from vramwise.sources.repository import Repository
from vramwise.units import MIB, format_bytes

INDEX = "pytorch_model.bin.index.json"
_WEIGHTS = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin")


def pytorch_note(repository: Repository) -> str | None:
    """A sentence on the size of a repository's PyTorch files where it has no others, None otherwise."""
    files = repository.files()
    if any(path.endswith((".safetensors", ".gguf")) for path in files):
        return None
    sizes = [size for path, size in files.items() if _WEIGHTS.fullmatch(path)]
    known = [size for size in sizes if size is not None]
    total = sum(known) if known and len(known) == len(sizes) else _total_in_index(repository)
    return (
        None if not total else f"{repository.name} holds {format_bytes(total)} in PyTorch files, which have no header"
    )


def _total_in_index(repository: Repository) -> int | None:
    if INDEX not in repository.files():
        return None
    try:
        table = json.loads(repository.read(INDEX, LARGEST_HEADER_BYTES))
    except (ValueError, RecursionError):
        return None
    metadata = table.get("metadata") if isinstance(table, Mapping) else None
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    return int(total) if isinstance(total, int | float) and 0 < total < 2**60 else None


LARGEST_BYTES = 4 * MIB
_FILES = {"hf_quant_config.json": "modelopt", "quantize_config.json": "gptq", "quant_config.json": "awq"}


def with_quantization(config: dict[str, object], files: RangedFiles) -> dict[str, object]:
    """`config` with its own table of quantization, else the one that a file of `files` has.

    ModelOpt's table may leave its list of layers to the file. Raises SourceError for such a file that cannot be read.
    """
    inner = config.get("text_config")
    places = (config, inner if isinstance(inner, Mapping) else {})
    own = next((found for place in places if (found := place.get("quantization_config")) is not None), None)
    if own is None and isinstance(config.get("compression_config"), Mapping):
        own = config["compression_config"]
        config = {**config, "quantization_config": own}
    is_short = isinstance(own, Mapping) and own.get("quant_algo") == "MIXED_PRECISION" and "quantized_layers" not in own
    if own is not None and not is_short:
        return config
    here = files.files()
    name = next((name for name in _FILES if name in here and (own is None or _FILES[name] == "modelopt")), None)
    if name is None:
        return config
    table = _table(files, name)
    nested = table.get("quantization")
    found = dict(nested) if isinstance(nested, Mapping) else table
    said = dict(own) if isinstance(own, Mapping) else {}
    return {**config, "quantization_config": {"quant_method": _FILES[name], **found, **said}} if found else config


def _table(files: RangedFiles, name: str) -> dict[str, object]:
    shown = shown_in(files, name)
    try:
        table = json.loads(files.read(name, LARGEST_BYTES))
    except (ValueError, RecursionError):
        raise SourceError(f"{shown}: is no JSON") from None
    if not isinstance(table, dict):
        raise SourceError(f"{shown}: expected a table of what quantized the model")
    return table
