"""Transformers 5.23 in eager mode: the primitive operations behind each operation of a block.

Each method of `HuggingFace` has the name of an operation's kind and records what the library's own code runs, in
its order, so that the tape's saved storages are those of `torch.autograd`.
"""

from __future__ import annotations

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Storage, Tensor
from vramwise.models.blocks import Block, Modality, Op, Parameter
from vramwise.models.execution import Execution
from vramwise.models.profiles.activations import apply_activation, xielu
from vramwise.models.profiles.attention import AttentionPaths
from vramwise.models.profiles.byte_patches import BytePatchPaths
from vramwise.models.profiles.capped_experts import CappedExpertPaths
from vramwise.models.profiles.codes import CodePaths
from vramwise.models.profiles.compressed_convolution import CompressedConvolutionPaths
from vramwise.models.profiles.convolutions import ConvolutionPaths
from vramwise.models.profiles.cpmant import CpmAntPaths
from vramwise.models.profiles.deberta import DebertaPaths
from vramwise.models.profiles.delta_rule import DeltaRulePaths
from vramwise.models.profiles.dora import with_dora
from vramwise.models.profiles.early_attention import EarlyAttentionPaths
from vramwise.models.profiles.encoders import EncoderPaths
from vramwise.models.profiles.experts import ExpertPaths
from vramwise.models.profiles.experts_by_modality import ExpertsByModality
from vramwise.models.profiles.flat_images import FlatImagePaths
from vramwise.models.profiles.frames import FramePaths
from vramwise.models.profiles.gates import GatePaths
from vramwise.models.profiles.hyper import HyperPaths
from vramwise.models.profiles.images import ImagePaths
from vramwise.models.profiles.images_before_text import ImagesBeforeTextPaths
from vramwise.models.profiles.independent_streams import IndependentStreamPaths
from vramwise.models.profiles.inkling import InklingPaths
from vramwise.models.profiles.inkling2 import Inkling2Paths
from vramwise.models.profiles.inputs import InputPaths
from vramwise.models.profiles.kimi_delta import KimiDeltaPaths
from vramwise.models.profiles.latent import LatentPaths
from vramwise.models.profiles.lightning import LightningPaths
from vramwise.models.profiles.linear_recurrence import LinearRecurrencePaths
from vramwise.models.profiles.matrix_lstm import MatrixLstmPaths
from vramwise.models.profiles.mixers import MixerPaths
from vramwise.models.profiles.near_attention import NearAttentionPaths
from vramwise.models.profiles.ngram_streams import NgramStreamPaths
from vramwise.models.profiles.norms import NormPaths
from vramwise.models.profiles.packed_images import PackedImagePaths
from vramwise.models.profiles.padded_images import PaddedImagePaths
from vramwise.models.profiles.query_projectors import QueryProjectorPaths
from vramwise.models.profiles.relative_bias import RelativeBiasPaths
from vramwise.models.profiles.residual_streams import ResidualStreamPaths
from vramwise.models.profiles.rwkv import RwkvPaths
from vramwise.models.profiles.sam import SamPaths
from vramwise.models.profiles.siglip import SiglipPaths
from vramwise.models.profiles.sliding_windows import SlidingWindowPaths
from vramwise.models.profiles.tiles import TilePaths
from vramwise.models.profiles.towers import TowerPaths
from vramwise.models.profiles.undescribed import UndescribedPaths
from vramwise.models.profiles.whole_and_tiles import WholeAndTilesPaths
from vramwise.models.profiles.xlnet import XLNetPaths
from vramwise.models.profiles.zamba import ZambaPaths

Streams = dict[str, Tensor]
_ADAPTER_LEAVES = ("lora_A", "lora_B", "lora_magnitude")


class HuggingFace(
    AttentionPaths,
    BytePatchPaths,
    CappedExpertPaths,
    CodePaths,
    CompressedConvolutionPaths,
    ConvolutionPaths,
    CpmAntPaths,
    DebertaPaths,
    DeltaRulePaths,
    EarlyAttentionPaths,
    EncoderPaths,
    KimiDeltaPaths,
    LatentPaths,
    ExpertPaths,
    ExpertsByModality,
    FramePaths,
    GatePaths,
    FlatImagePaths,
    PaddedImagePaths,
    HyperPaths,
    IndependentStreamPaths,
    InklingPaths,
    ImagePaths,
    ImagesBeforeTextPaths,
    Inkling2Paths,
    InputPaths,
    LightningPaths,
    LinearRecurrencePaths,
    MatrixLstmPaths,
    MixerPaths,
    NearAttentionPaths,
    NgramStreamPaths,
    NormPaths,
    PackedImagePaths,
    QueryProjectorPaths,
    RelativeBiasPaths,
    RwkvPaths,
    ResidualStreamPaths,
    SamPaths,
    SiglipPaths,
    SlidingWindowPaths,
    TilePaths,
    TowerPaths,
    UndescribedPaths,
    WholeAndTilesPaths,
    XLNetPaths,
    ZambaPaths,
):
    """Runs blocks on a tape as transformers runs its modules."""

    def __init__(
        self,
        tape: Tape,
        execution: Execution,
        batch: Dim,
        sequence: Dim,
        windows_reached: frozenset[int],
        source: Dim | None = None,
    ) -> None:
        self.tape = tape
        self.execution = execution
        self.batch = batch
        self.sequence = sequence
        self.source = sequence if source is None else source
        self.windows_reached = windows_reached
        self.chunks_filled: frozenset[int] = frozenset()
        self.one_behind_chunks: frozenset[int] = frozenset()
        self.streams: Streams = {}
        self.tables: dict[str, tuple[Tensor, ...]] = {}
        self.parameters: dict[str, Tensor] = {}
        self.hidden_dtype = execution.param_dtype
        self.modality: Modality = "text"
        self.images_see_each_other = ""

    # -- running -------------------------------------------------------------------------------------------

    def run(self, block: Block) -> None:
        """Runs a block: reads its streams, replaces those that it hands on."""
        self.tape.grad_enabled = not block.no_grad
        self.modality = block.modality
        values: dict[int, Tensor] = {value.id: self.streams[name] for name, value in block.inputs.items()}
        for op in block.ops:
            with self.tape.inside(op.module):
                record = getattr(self, op.kind, None)
                if record is None:
                    raise UnsupportedModelError(f"{block.name}: what it keeps for backward is not described yet")
                results = record(op, *(values[value.id] for value in op.inputs))
            if isinstance(results, Tensor):
                results = (results,)
            for value, result in zip(op.outputs, results, strict=True):
                values[value.id] = result
        for name, value in block.outputs.items():
            self.streams[name] = values[value.id]

    def parameter(self, parameter: Parameter) -> Tensor:
        """The tensor of a parameter; tied parameters share one."""
        name = parameter.tied_to or parameter.name
        if name not in self.parameters:
            trains = self.execution.trains(name) and not parameter.frozen
            dtype = self.execution.dtype_of(parameter)
            self.parameters[name] = self.tape.parameter(parameter.shape, dtype, requires_grad=trains)
        return self.parameters[name]

    def parameters_of(self, op: Op) -> list[Tensor]:
        return [self.parameter(parameter) for parameter in op.parameters]

    def weights_of(self, block: Block) -> tuple[tuple[Storage, int], ...]:
        """Storages of a block's parameters and of their adapters, as far as they were used, with their places."""
        found = []
        for place, parameter in enumerate(block.parameters):
            names = (parameter.tied_to or parameter.name, *(f"{parameter.name}.{leaf}" for leaf in _ADAPTER_LEAVES))
            found += [(self.parameters[name].storage, place) for name in names if name in self.parameters]
        return tuple(found)

    # -- simple operations ---------------------------------------------------------------------------------

    def embedding(self, op: Op) -> Tensor:
        (weight,) = self.parameters_of(op)
        ids = self.input_tensor(op.settings["ids"], op.settings.get("buffer_rows"))
        return self.tape.embedding(ids, weight)

    def hold(self, op: Op, x: Tensor) -> Tensor:
        """Parameters that a module owns and that others use under another name."""
        return x

    def linear(self, op: Op, x: Tensor) -> Tensor:
        weight, *bias = self.parameters_of(op)
        if self.execution.quantizes(op.parameters[0]):
            # bitsandbytes 0.50 nn/modules.py Linear4bit.forward: the input in the compute dtype, the answer in its own.
            result = self.tape.to(self.tape.linear(self.tape.to(x, weight.dtype), weight, *bias), x.dtype)
        else:
            result = self.tape.linear(x, weight, *bias)
        return self.with_adapter(op, x, result)

    def conv1d_linear(self, op: Op, x: Tensor) -> Tensor:
        weight, bias = self.parameters_of(op)
        result = self.tape.conv1d_linear(x, weight, bias)
        return self.with_adapter(op, x, result)

    def with_adapter(self, op: Op, x: Tensor, result: Tensor) -> Tensor:
        """PEFT's `lora.Linear.forward` (0.21): result + B(A(dropout(x as adapter dtype))) · scaling."""
        lora = self.execution.lora
        if lora is None or op.module.rsplit(".", 1)[-1] not in lora.targets:
            return result
        tape = self.tape
        name = op.parameters[0].name
        width = op.outputs[0].width
        a = self._adapter(f"{name}.lora_A", (lora.rank, op.inputs[0].width), lora.dtype)
        b = self._adapter(f"{name}.lora_B", (width, lora.rank), lora.dtype)
        if lora.dora:
            weight, *bias = self.parameters_of(op)
            magnitude = self._adapter(f"{name}.lora_magnitude", (width,), lora.dtype)
            adapted = (a, b, magnitude, lora.dropout)
            wide = with_dora(tape, tape.to(x, lora.dtype), result, weight, bias[0] if bias else None, *adapted)
            return tape.to(wide, result.dtype)
        x = tape.dropout(tape.to(x, lora.dtype), lora.dropout)
        delta = tape.scale(tape.linear(tape.linear(x, a), b))
        return tape.to(tape.add(result, delta), result.dtype)

    def _adapter(self, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
        if name not in self.parameters:
            self.parameters[name] = self.tape.parameter(shape, dtype, requires_grad=True)
        return self.parameters[name]

    def add(self, op: Op, a: Tensor, b: Tensor) -> Tensor:
        return self.tape.add(a, b)

    def add_in_place(self, op: Op, a: Tensor, b: Tensor) -> Tensor:
        return self.tape.add_(a, b)

    def add_bias(self, op: Op, x: Tensor) -> Tensor:
        """A bias that the class adds itself: autocast does not cast it, so it widens the sum."""
        return self.tape.add(x, *self.parameters_of(op))

    def multiply(self, op: Op, a: Tensor, b: Tensor) -> Tensor:
        return self.tape.mul(a, b)

    def scale_by(self, op: Op, x: Tensor) -> Tensor:
        """A product with a parameter."""
        return self.tape.mul(x, *self.parameters_of(op))

    def scale(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.scale(x)

    def scale_by_buffer(self, op: Op, x: Tensor) -> Tensor:
        """A buffer in the parameters' dtype, as gemma's `embed_scale`."""
        return self.tape.mul(x, self.tape.new((), self.execution.param_dtype, kind="buffer", op="buffer"))

    def clamp(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.unary("clamp", x)

    def clamp_(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.clamp_(x)

    def activation(self, op: Op, x: Tensor) -> Tensor:
        return apply_activation(self.tape, op.settings["function"], x)

    def xielu(self, op: Op, x: Tensor) -> Tensor:
        positive, negative = self.parameters_of(op)
        return xielu(self.tape, x, positive, negative)

    def dropout(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.dropout(x, op.settings["p"]) if self.execution.dropout else x

    def split(self, op: Op, x: Tensor) -> tuple[Tensor, ...]:
        return self.tape.split(x, op.settings["pieces"])

    def heads(self, op: Op, x: Tensor) -> Tensor:
        num_heads = op.settings["num_heads"]
        return self.tape.view(x, *x.shape[:-1], num_heads, op.outputs[0].width)

    def first_token(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.select(x, 1)

    def heads_first(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.transpose(x, 1, 2)

    # -- losses --------------------------------------------------------------------------------------------

    def causal_lm_loss(self, logits: Tensor) -> Tensor:
        """`ForCausalLMLoss`: fp32 logits, labels padded and shifted, cross entropy."""
        tape = self.tape
        with tape.inside("loss"):
            logits = tape.to(logits, "fp32")
            labels = self.input_tensor("input_ids")
            padded = tape.pad(labels, -1, 1)
            shifted = tape.contiguous(tape.narrow(padded, -1, self.sequence))
            rows = tape.view(logits, -1, logits.shape[-1])
            return tape.cross_entropy(rows, tape.view(shifted, -1))

    def shifted_lm_loss(self, logits: Tensor) -> Tensor:
        """`CrossEntropyLoss` over a copy of all logits but the last position's, in their dtype (Qwen2-Audio)."""
        tape = self.tape
        with tape.inside("loss"):
            kept = self.sequence - 1
            logits = tape.contiguous(tape.narrow(logits, 1, kept))
            labels = tape.contiguous(tape.narrow(self.input_tensor("labels"), 1, kept))
            return tape.cross_entropy(tape.reshape(logits, -1, logits.shape[-1]), tape.reshape(labels, -1))

    def fp32_lm_loss(self, logits: Tensor) -> Tensor:
        """`ForMaskedLMLoss`: as `lm_loss` on fp32 logits."""
        return self.lm_loss(self.tape.to(logits, "fp32"))

    def lm_loss(self, logits: Tensor) -> Tensor:
        """`CrossEntropyLoss` over every position, in the logits' dtype."""
        tape = self.tape
        with tape.inside("loss"):
            rows = tape.view(logits, -1, logits.shape[-1])
            return tape.cross_entropy(rows, tape.view(self.input_tensor("labels"), -1))
