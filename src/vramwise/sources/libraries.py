"""Which library a repository is for, told by its files, and the weights of its components.

timm: `config.json` with `architecture` (timm 1.0.31 models/_hub.py). Diffusers: `model_index.json` that names the
components, each in a folder of its own (diffusers 0.42.1 pipelines/pipeline_utils.py), or a config with `_class_name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vramwise.errors import SourceError, clipped
from vramwise.formats.ranged import RangedFiles
from vramwise.formats.safetensors import INDEX_SUFFIX, SUFFIX, StoredWeights, stored_weights
from vramwise.records import record, replace
from vramwise.scenario.names import EMBEDDERS

DESCRIBED: Final = "transformers"
_NAMES = ("diffusion_pytorch_model", "model", "pytorch_model", "open_clip_model")
_WITHOUT_WEIGHTS = ("Scheduler", "Tokenizer", "TokenizerFast", "Processor", "Extractor")
_SHOWN = 3


@record
class Library:
    """A library's name, why it was taken, and what it calls the model."""

    name: str
    reason: str
    called: str

    @property
    def has_types(self) -> bool:
        """Whether it is the library whose types are described."""
        return self.name == DESCRIBED


def library_of(config: Mapping[str, object], asked: str = "auto") -> Library:
    """The library of a model with this `config.json` or `model_index.json`.

    Raises SourceError where another library was asked for than the config is written for.
    """
    found = _told(config)
    if asked in ("auto", found.name) or (asked == EMBEDDERS and "model_type" in config):
        return found  # sentence-transformers puts its pooling on a class of transformers
    if asked == DESCRIBED or not config:
        raise SourceError(f"--library {asked}: {found.reason}, so it is a model of {found.name}; leave --library out")
    return replace(found, name=asked, reason=f"--library says so; {found.reason}")


def _told(config: Mapping[str, object]) -> Library:
    kind, architecture, pipeline = (config.get(key) for key in ("model_type", "architecture", "_class_name"))
    if isinstance(pipeline, str) and pipeline:
        return Library("diffusers", f"its config has _class_name {clipped(pipeline, 40)}", f"{clipped(pipeline, 60)}")
    if isinstance(kind, str) and kind:
        return Library(
            "transformers", f"its config has model_type {clipped(kind, 40)}", f'model_type "{clipped(kind)}"'
        )
    if isinstance(architecture, str) and architecture:
        name = clipped(architecture, 60)
        return Library("timm", f"its config has architecture {name}", f'the timm architecture "{name}"')
    return Library(DESCRIBED, "its config names no library", "a config without model_type")


def components(config: Mapping[str, object], files: RangedFiles) -> tuple[str, ...]:
    """The folders of a pipeline that hold weights, in the order of its `model_index.json`."""
    if not isinstance(config.get("_class_name"), str):
        return ()
    folders = {name.partition("/")[0] for name in files.files() if name.count("/") == 1 and name.endswith(SUFFIX)}
    return tuple(name for name, value in config.items() if name in folders and isinstance(value, list | tuple))


def component_weights(config: Mapping[str, object], files: RangedFiles) -> StoredWeights | None:
    """The tensors of all components, each under its folder's name; None for a repository without any.

    Of several variants of one file (fp16, a mask, EMA) the one without a word of its own counts, else the first.
    """
    names = components(config, files)
    if not names:
        return None
    found = [(name, stored_weights(files, _entry(name, files))) for name in names]
    named = [
        (place < len(weights.tensors) - weights.unread_files, replace(one, name=f"{name}/{one.name}"))
        for name, weights in found for place, one in enumerate(weights.tensors)
    ]  # fmt: skip
    tensors = tuple(one for was_read in (True, False) for told, one in named if told is was_read)
    count, unread = (sum(getattr(one, key) for _, one in found) for key in ("num_files", "unread_files"))
    return StoredWeights(files.name, tensors, count, all(weights.is_whole for _, weights in found), unread)


def left_out(config: Mapping[str, object], files: RangedFiles) -> str:
    """Components that the pipeline names and of which no safetensors file is here, as a sentence; empty without."""
    here = components(config, files)
    wanted = [
        name for name, value in config.items()
        if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
        and name not in here and not value[1].endswith(_WITHOUT_WEIGHTS)
    ]  # fmt: skip
    if not wanted:
        return ""
    more = ", …" if len(wanted) > _SHOWN else ""
    return f"no safetensors files of {', '.join(clipped(name) for name in wanted[:_SHOWN])}{more} are here: not counted"


def _entry(folder: str, files: RangedFiles) -> str:
    inside = sorted(name for name in files.files() if name.startswith(f"{folder}/") and name.count("/") == 1)
    indexes = [name for name in inside if name.endswith(INDEX_SUFFIX)]
    singles = [name for name in inside if name.endswith(SUFFIX) and "-of-" not in name]
    return min([*singles, *indexes] or inside, key=_preference)


def _preference(name: str) -> tuple[bool, bool, str]:
    stem = name.rpartition("/")[2].removesuffix(INDEX_SUFFIX).removesuffix(SUFFIX)
    return stem not in _NAMES, name.endswith(INDEX_SUFFIX), name
