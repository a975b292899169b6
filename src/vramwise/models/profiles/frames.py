"""GLM-4V's tower as transformers 5.23 runs it, where it differs from Qwen2-VL's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op


class FramePaths:
    """Positions sampled from a grid, squares of patches joined by a convolution."""

    tape: Tape
    parameters_of: Callable[[Op], list[Tensor]]
    frames_embedding: Callable[[Op], Tensor]
    rms_norm: Callable[[Op, Tensor], Tensor]

    def sampled_frames_embedding(self, op: Op) -> Tensor:
        """As `frames_embedding`, a norm, plus a table sampled by `F.grid_sample` in fp32, which keeps both operands."""
        tape, (table, *_) = self.tape, self.parameters_of(op)
        x = self.frames_embedding(replace(op, parameters=op.parameters[1:3]))
        x = self.rms_norm(replace(op, parameters=op.parameters[3:], settings={"style": "llama"}), x)
        rows, side = x.shape[0], op.settings["side"]
        grid = tape.new((1, rows, 1, 2), "fp32", op="stack")
        whole = tape.permute(tape.view(table, side, side, x.shape[1]), 2, 0, 1)
        whole = tape.to(tape.unsqueeze(whole, 0), "fp32")
        sampled = tape.new((1, x.shape[1], rows, 1), "fp32", requires_grad=whole.requires_grad, op="grid_sampler_2d")
        tape.record("grid_sampler_2d", [whole, grid], [sampled], [(whole, "input"), (grid, "grid")])
        positions = tape.permute(tape.squeeze(tape.squeeze(sampled, 0), -1), 1, 0)
        return tape.add(x, tape.to(positions, table.dtype))

    def downsampled(self, op: Op, x: Tensor) -> Tensor:
        """A norm, then a convolution as wide as the squares whose patches lie behind one another."""
        tape, (_, weight, bias) = self.tape, self.parameters_of(op)
        x = self.rms_norm(replace(op, parameters=op.parameters[:1], settings={"style": "llama"}), x)
        side = op.settings["side"]
        squares = tape.view(x, x.shape[0] // side**2, side, side, x.shape[1])
        joined = tape.patch_conv2d(tape.permute(squares, 0, 3, 1, 2), weight, bias)
        return tape.view(joined, joined.shape[0], weight.shape[0])
