"""Files of a hub that a script asks for and that are not on this machine: what a dry run does without, what it says.

Weights are never wanted: a state that would be loaded is one that every module takes. A tokenizer and a data set decide
how long sequences are, so that nothing can stand in for them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, Final

from vramwise.errors import VramwiseError, clipped
from vramwise.measure.libraries import is_installed, library

_TOKENIZERS: Final = (
    "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt",
    "tekken.json", "sentencepiece.model", "tiktoken.model", "source.spm", "bpe.codes", "tokenizer.model.v3",
)  # fmt: skip
_OF_A_HUB: Final = ("DatasetNotFoundError", "OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError",
                    "FileNotFoundError", "OSError", "ValueError")  # fmt: skip


_OF_FILES: Final = ("json", "csv", "text", "parquet", "arrow", "imagefolder", "audiofolder")
"""Builders of data sets that read files which a script names."""


class NotHereError(VramwiseError):
    """A file that decides about sizes is not on this machine; the message says what brings it."""


class NotHere:
    """What was asked for in vain. Libraries catch errors of their own kinds and raise others: the first word counts."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def error(self, message: str) -> NotHereError:
        self.said.append(message)
        return NotHereError(message)

    def explains(self, problem: BaseException) -> bool:
        """Whether a script ended by what it asked for in vain."""
        kinds = {kind.__name__ for kind in type(problem).__mro__}
        return bool(self.said) and bool(kinds & {"NotHereError", *_OF_A_HUB})

    def replacements(self) -> list[tuple[object, str, object]]:
        """Attributes to replace so that what is not here is said in one sentence, and weights are not asked for."""
        found = _weights_of_any()
        if is_installed("transformers"):
            found += self._tokenizers()
        if is_installed("datasets"):
            found += self._data_sets()
        return found

    def _tokenizers(self) -> list[tuple[object, str, object]]:
        transformers = library("transformers")
        found: list[tuple[object, str, object]] = []
        for name in ("AutoTokenizer", "AutoProcessor", "PreTrainedTokenizerBase"):
            cls = getattr(transformers, name)
            found.append((cls, "from_pretrained", classmethod(self._tokenizer(cls.from_pretrained.__func__))))
        return found

    def _tokenizer(self, read: Callable[..., object]) -> Callable[..., object]:
        def from_pretrained(cls: object, name: Any, *args: object, **kwargs: object) -> Any:
            text = os.fspath(name)
            try:
                made = read(cls, name, *args, **kwargs)
            except (OSError, ValueError, TypeError, KeyError, ImportError):
                if _has_any(text, _TOKENIZERS, kwargs):
                    raise
                raise self.error(_no_tokenizer(text)) from None
            inner = getattr(made, "tokenizer", made)
            reads_files = bool(getattr(inner, "vocab_files_names", None))
            if reads_files and hasattr(inner, "convert_ids_to_tokens") and not _has_any(text, _TOKENIZERS, kwargs):
                raise self.error(_no_tokenizer(text))  # transformers made an empty one, in which no text has a token
            return made

        return from_pretrained

    def _data_sets(self) -> list[tuple[object, str, object]]:
        datasets = library("datasets")
        load = datasets.load_dataset

        def loaded(path: object, *args: object, **kwargs: object) -> Any:
            if tempfile.tempdir is not None and (str(path) in _OF_FILES or os.path.exists(str(path))):
                kwargs["cache_dir"] = tempfile.tempdir  # Arrow reads what was written aside by its real name
            kwargs.pop("num_proc", None)
            try:
                return load(path, *args, **kwargs)
            except (OSError, ValueError) as problem:
                if not {kind.__name__ for kind in type(problem).__mro__} & set(_OF_A_HUB[:4]):
                    raise
                name = clipped(str(path), 80)
                raise self.error(
                    f'the data set "{name}" is not on this machine, and a dry run opens no '
                    f"connection: download it first (python -c \"import datasets; datasets.load_dataset('{name}')"
                    '"), or name files of your own'
                ) from None

        kind = datasets.Dataset
        here = [(kind, name, _in_this_process(getattr(kind, name))) for name in ("map", "filter")]
        return [(datasets, "load_dataset", loaded), (datasets.load, "load_dataset", loaded), *here]


def _in_this_process(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work on a data set without processes of its own: they talk over sockets, and would inherit the stand-ins."""

    def worked(*args: Any, num_proc: int | None = None, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    return worked


def _no_tokenizer(name: str) -> str:
    """What to do where a tokenizer is missing: it decides how many tokens a text has."""
    if os.path.isdir(name):
        return (
            f'the folder "{clipped(name, 80)}" has no tokenizer, which decides how long sequences are: save one there '
            "(tokenizer.save_pretrained), or copy its tokenizer.json"
        )
    return (
        f'the tokenizer of "{clipped(name, 80)}" is not on this machine, and a dry run opens no connection: download '
        f"it first (hf download {clipped(name, 80)} --include '*token*' 'vocab*' 'merges*'); weights are not needed"
    )


def _has_any(name: str, files: Iterable[str], kwargs: dict[str, object]) -> bool:
    """Whether a folder, or the cache of a hub, has one of these files."""
    inside = str(kwargs.get("subfolder") or "")
    if os.path.isdir(name):
        return any(os.path.isfile(os.path.join(name, inside, file)) for file in files)
    if os.path.isfile(name):
        return True
    look = library("huggingface_hub").try_to_load_from_cache
    where = {"cache_dir": kwargs.get("cache_dir"), "revision": kwargs.get("revision")}
    try:
        return any(isinstance(look(name, os.path.join(inside, file), **where), str) for file in files)
    except ValueError:  # no name of a repository
        return False


_OF_FOLDERS: Final = ("subfolder", "cache_dir", "revision", "token", "local_files_only")
"""Keywords of `from_pretrained` that say where a config lies."""


class AnyState(dict[str, Any]):
    """Weights that nobody read: every module takes them and stays as it was made."""


def _weights_of_any() -> list[tuple[object, str, object]]:
    """Weights by address (torch.hub, torchvision), and timm's pretrained models."""
    torch = library("torch")
    module = torch.nn.Module
    load = module.load_state_dict

    def loaded(self: object, state: object, *args: object, **kwargs: object) -> Any:
        if isinstance(state, AnyState):
            return library("torch.nn.modules.module")._IncompatibleKeys([], [])
        return load(self, state, *args, **kwargs)

    def fetched(*_: object, **__: object) -> AnyState:
        return AnyState()

    found: list[tuple[object, str, object]] = [
        (module, "load_state_dict", loaded),
        (torch.hub, "load_state_dict_from_url", fetched),
    ]
    vision, builder = _imported("torchvision", "models._api"), _imported("timm", "models._builder")
    if vision is not None:
        found.append((vision.WeightsEnum, "get_state_dict", fetched))
    if builder is not None:
        found.append((builder, "load_pretrained", lambda *_, **__: None))
    parts = _imported("diffusers", "models.modeling_utils")
    if parts is not None:
        found.append((parts.ModelMixin, "from_pretrained", classmethod(_part_of_config)))
    return found


def _part_of_config(cls: Any, /, name: Any, **kwargs: object) -> Any:
    """Diffusers' `ModelMixin.from_pretrained`: the class of its config, in eval mode and its dtype, without weights."""
    where = {key: kwargs[key] for key in _OF_FOLDERS if kwargs.get(key) is not None}
    model = cls.from_config(cls.load_config(name, **where)).eval()
    dtype = kwargs.get("torch_dtype", kwargs.get("dtype"))
    return model.to(dtype) if dtype is not None else model


def _imported(name: str, module: str) -> Any | None:
    """A module of a library; None where the library is not installed, or lacks what it needs or fits another torch
    (timm without torchvision): a script that wants it says so itself."""
    try:
        return library(f"{name}.{module}") if is_installed(name) else None
    except (ImportError, RuntimeError):
        return None
