"""Index tensors that come with a batch or that the library makes from it."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import StorageKind, Tensor
from vramwise.models.lowering import Lowering


def input_tensor(run: Lowering, name: str, buffer_rows: int | None = None) -> Tensor:
    """The index tensor `name`; `buffer_rows` is the length of the module's buffer where it is a view of one."""
    if name not in run.streams:
        run.streams[name] = _made(run, name, buffer_rows)
    return run.streams[name]


def _made(run: Lowering, name: str, buffer_rows: int | None) -> Tensor:
    """input_ids, attention_mask, encoder_input_ids, labels: the batch.

    decoder_input_ids: labels shifted right, a new tensor. position_ids: one row for the batch, of a buffer where
    `buffer_rows` says so. token_type_ids: BERT's, gathered once and expanded. counted_position_ids and
    counted_token_type_ids: RoBERTa's, one row a sequence.
    narrowed_token_type_ids: BigBird's, a view of a buffer. text_…: without the tokens of images before it.
    """
    batch, sequence = run.batch, run.sequence
    if name.startswith("text_"):
        name, sequence = name.removeprefix("text_"), text_length(run)
    if name in ("input_ids", "labels", "attention_mask"):
        return _ids(run, batch, sequence, name, "input")
    if name == "encoder_input_ids":
        return _ids(run, batch, run.source, name, "input")
    if name.startswith("encoder_position"):
        return _ids(run, batch if name.endswith("rows") else 1, run.source, name)
    if name == "narrowed_token_type_ids" and buffer_rows is not None:
        row = run.tape.narrow(_ids(run, 1, buffer_rows, name, "buffer"), -1, sequence)
        return run.tape.expand(row, batch, sequence)
    if buffer_rows is not None:
        return run.tape.narrow(_ids(run, 1, buffer_rows, name, "buffer"), -1, sequence)
    if name == "token_type_ids":
        return run.tape.expand(_ids(run, 1, sequence, "gather"), batch, sequence)
    is_shared = name == "position_ids" and not run.execution.positions_by_row
    return _ids(run, 1 if is_shared else batch, sequence, name)


def text_length(run: Lowering) -> Dim:
    """Tokens of a sequence that are no image's."""
    images = run.execution.images
    return run.sequence if images is None else run.sequence - images.per_sequence * images.tokens


def _ids(run: Lowering, rows: Dim, columns: Dim, op: str, kind: StorageKind = "activation") -> Tensor:
    return run.tape.new((rows, columns), "int64", kind=kind, op=op)
