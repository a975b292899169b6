"""Index tensors that come with a batch or that the library makes from it."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import StorageKind, Tensor
from vramwise.models.execution import Execution


class InputPaths:
    """Ids, positions, segments and labels (int64), each made once."""

    tape: Tape
    batch: Dim
    sequence: Dim
    source: Dim
    execution: Execution
    streams: dict[str, Tensor]

    def input_tensor(self, name: str, buffer_rows: int | None = None) -> Tensor:
        """The index tensor `name`; `buffer_rows` is the length of the module's buffer where it is a view of one."""
        if name not in self.streams:
            self.streams[name] = self._made(name, buffer_rows)
        return self.streams[name]

    def _made(self, name: str, buffer_rows: int | None) -> Tensor:
        """input_ids, attention_mask, encoder_input_ids, labels: the batch.

        decoder_input_ids: labels shifted right, a new tensor. position_ids: one row for the batch, of a buffer where
        `buffer_rows` says so. token_type_ids: BERT's, gathered once and expanded. counted_position_ids and
        counted_token_type_ids: RoBERTa's, one row a sequence.
        narrowed_token_type_ids: BigBird's, a view of a buffer. text_…: without the tokens of images before it.
        """
        batch, sequence = self.batch, self.sequence
        if name.startswith("text_"):
            name, sequence = name.removeprefix("text_"), self.text_length()
        if name in ("input_ids", "labels", "attention_mask"):
            return self._ids(batch, sequence, name, "input")
        if name == "encoder_input_ids":
            return self._ids(batch, self.source, name, "input")
        if name.startswith("encoder_position"):
            return self._ids(batch if name.endswith("rows") else 1, self.source, name)
        if name == "narrowed_token_type_ids" and buffer_rows is not None:
            row = self.tape.narrow(self._ids(1, buffer_rows, name, "buffer"), -1, sequence)
            return self.tape.expand(row, batch, sequence)
        if buffer_rows is not None:
            return self.tape.narrow(self._ids(1, buffer_rows, name, "buffer"), -1, sequence)
        if name == "token_type_ids":
            return self.tape.expand(self._ids(1, sequence, "gather"), batch, sequence)
        is_shared = name == "position_ids" and not self.execution.positions_by_row
        return self._ids(1 if is_shared else batch, sequence, name)

    def text_length(self) -> Dim:
        """Tokens of a sequence that are no image's."""
        images = self.execution.images
        return self.sequence if images is None else self.sequence - images.per_sequence * images.tokens

    def _ids(self, rows: Dim, columns: Dim, op: str, kind: StorageKind = "activation") -> Tensor:
        return self.tape.new((rows, columns), "int64", kind=kind, op=op)
