"""What is known of a model by its tensors alone: from the headers of its files, else from transformers' own class."""

from __future__ import annotations

from vramwise.formats.safetensors import StoredWeights
from vramwise.models import Model
from vramwise.models.tensors_only import model_of_tensors
from vramwise.records import record
from vramwise.sources import ModelSource
from vramwise.sources.libraries import Library, left_out, library_of


@record
class KnownTensors:
    """A model of tensors; `files` None where a class on the meta device told them. `unknown` says what is missing."""

    model: Model
    library: Library
    source: str
    files: StoredWeights | None
    unknown: str
    notes: tuple[str, ...] = ()


def known_tensors(found: ModelSource, asked: str = "auto") -> KnownTensors | None:
    """The tensors and whose model they are; None where no file and no class tells them.

    Raises SourceError where another library was asked for than the files are written for.
    """
    library = library_of(found.config, asked)
    files = found.stored_weights()
    rest = "activations are not known"
    if files is not None:
        whole = "" if files.is_whole else "; the files end before their data does"
        unknown = f"{library.called} is not described: weights are those of the files' headers, {rest}{whole}"
        model = model_of_tensors(found.config, found.id, [(tensor.name, tensor.shape) for tensor in files.tensors])
        source, notes = f"safetensors headers: {files.path}", (*_missing(found), *filter(None, (files.note,)))
    else:
        from vramwise.models.meta_device import class_tensors

        made = class_tensors(found.config)
        if made is None:
            return None
        source, notes = f"transformers {made.version} {made.class_name} on the meta device", ()
        unknown = f"{library.called} is not described: weights are those of {source}, {rest}"
        model = model_of_tensors(found.config, found.id, made.tensors)
    return KnownTensors(
        model, library, source, files, unknown, (f"taken as a model of {library.name}: {library.reason}", *notes)
    )


def _missing(found: ModelSource) -> tuple[str, ...]:
    if found.repository is None or "_class_name" not in found.config:
        return ()
    missing = left_out(found.config, found.repository)
    return (missing,) if missing else ()
