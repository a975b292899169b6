"""What quantized a checkpoint, where a file beside its config.json says it.

ModelOpt writes `hf_quant_config.json` (vLLM 0.33.0 transformers_utils/config.py reads it where the config is silent),
AutoGPTQ and AutoAWQ wrote `quantize_config.json` and `quant_config.json` (vLLM auto_gptq.py, auto_awq.py
get_config_filenames).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.errors import SourceError
from vramwise.formats.ranged import RangedFiles, shown_in
from vramwise.units import MIB

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
