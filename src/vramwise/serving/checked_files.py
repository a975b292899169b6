"""A described model beside the headers of its files."""

from __future__ import annotations

from vramwise.errors import UnsupportedModelError
from vramwise.formats.safetensors import StoredWeights
from vramwise.models import Model, describe
from vramwise.models.config import checkpoint_dtype, stated_dtype
from vramwise.models.header_comparison import compared, most_common_dtype
from vramwise.records import replace
from vramwise.serving.common.storage import storage_of


def as_in_files(model: Model, files: StoredWeights) -> Model:
    """The model with notes of what the files hold otherwise; a dtype that the config leaves open is the files'."""
    dtype = most_common_dtype(files.tensors) if stated_dtype(model.config.values) is None else None
    if dtype is not None and dtype != checkpoint_dtype(model.config.values):
        model = describe({**model.config.values, "torch_dtype": dtype}, model.id)
    try:
        storage = storage_of(model, "auto", None, None)
    except UnsupportedModelError:  # said where its weights are asked for
        return model
    read = files.tensors[: len(files.tensors) - files.unread_files]
    found = compared(
        model, read, checkpoint_dtype(model.config.values), storage.quantizes, are_all=not files.unread_files
    )
    notes = (*found.notes, f"{files.in_part} were compared with the config") if files.unread_files else found.notes
    return replace(model, file_notes=notes, whole=found.whole) if notes else model
