"""A described model: its blocks and what is read off them directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from vramwise.errors import UnsupportedModelError, VramwiseError
from vramwise.memo import of_model
from vramwise.models.blocks import Block, Buffer, K, Operation, Parameter
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import AnyAttention, Attention
from vramwise.records import record


@record(eq=False, slots=False)
class Model:
    """A model as its blocks in the order in which they run.

    `head` names the task of the last block (`causal-lm`, `masked-lm`, `seq2seq-lm`, or `none` without logits), `loss`
    the task whose loss the class computes where it is another, `not_counted` the activations that no block records,
    `counted_as` what depends on the data and how much of it is counted.
    """

    id: str
    family: str
    config: Config
    blocks: tuple[Block, ...]
    head: str = "causal-lm"
    loss: str = ""
    not_counted: str = ""
    counted_as: str = ""
    file_notes: tuple[str, ...] = ()
    """What the headers of its files say otherwise than its config."""
    whole: frozenset[str] = frozenset()
    """Weights that the files hold unquantized although the config does not leave them out."""

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """The blocks of a model that has them late (`with_late_blocks`)."""
            late = vars(self).pop("late_blocks", None) if name == "blocks" else None
            if late is None:
                raise AttributeError(name)
            self.blocks = late()
            return self.blocks

    def operations(self, kind: type[K]) -> Iterator[K]:
        """Its operations of one class, in the order in which they run."""
        return (op for block in self.blocks for op in block.operations(kind))

    def has(self, kind: type[Operation]) -> bool:
        """Whether a block of it has an operation of a class."""
        return _has(self, kind)

    @cached_property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """Every parameter in order, tied ones included; one that several operations use counts once."""
        every = (parameter for block in self.blocks for parameter in block.parameters)
        return tuple({parameter.name: parameter for parameter in every}.values())

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter that has a storage of its own (tied ones once)."""
        return tuple(parameter for parameter in self.all_parameters if parameter.tied_to is None)

    @cached_property
    def without_gradient(self) -> frozenset[str]:
        """Parameters that want a gradient and that no backward pass reaches, as an indexer's."""
        reached = {
            parameter.tied_to or parameter.name
            for block in self.blocks if not block.no_grad
            for op in block.ops if op.has_gradients
            for parameter in op.parameters
        }  # fmt: skip
        return frozenset(parameter.name for parameter in self.parameters if parameter.name not in reached)

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The large tensors that its modules register beside their parameters."""
        return tuple(buffer for block in self.blocks for buffer in block.buffers)

    @cached_property
    def shares_weights(self) -> bool:
        """Whether a weight is another one's, as a tied output layer is."""
        return any(parameter.tied_to is not None for parameter in self.all_parameters)

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters, tied weights once, copies of them not at all."""
        return sum(parameter.numel for parameter in self.parameters if parameter.original is None)

    @cached_property
    def has_experts(self) -> bool:
        """Whether tokens are sent to some of several MLPs."""
        return any(parameter.part == "experts" for parameter in self.all_parameters)

    @cached_property
    def ends_in_text(self) -> bool:
        """Whether its last block reads hidden states of text."""
        return "hidden" in self.blocks[-1].inputs

    @cached_property
    def has_latent_cache(self) -> bool:
        """Whether a layer keeps a latent of each token, not its keys and values."""
        return any(cache.kind == "latent" for cache in self.caches)

    @cached_property
    def has_indexer(self) -> bool:
        """Whether a layer keeps keys by which an indexer chooses what is attended to."""
        return any(cache.index_dim for cache in self.caches)

    @cached_property
    def num_active_parameters(self) -> int:
        """Parameters that one token passes: all but the routed experts that it is not sent to."""
        return self.num_parameters - sum(op.idle_numel for op in self.operations(Operation))

    @cached_property
    def parts(self) -> dict[str, int]:
        """Number of parameters by part (embedding, attention, mlp, experts, norm, head, ...), tied once."""
        parts: dict[str, int] = {}
        for parameter in self.parameters:
            parts[parameter.part] = parts.get(parameter.part, 0) + parameter.numel
        return parts

    @cached_property
    def caches(self) -> tuple[LayerCache, ...]:
        """The cache of every layer that keeps one, in order."""
        return tuple(cache for block in self.blocks for cache in block.caches)

    @cached_property
    def layer_caches(self) -> tuple[tuple[LayerCache, ...], ...]:
        """The caches of each repeating layer."""
        return tuple(block.caches for block in self.layers())

    @cached_property
    def has_float_mask(self) -> bool:
        """Whether attention is handed a mask of floats: position biases (ALiBi, T5's) or a mask that is trained."""
        return any(op.has_float_mask for op in self.operations(AnyAttention))

    @cached_property
    def chunk_sizes(self) -> frozenset[int]:
        """Lengths of the chunks in which recurrent layers work through a sequence, or of two where one is a case."""
        names = ("chunk_size", "two_chunks")
        chunks = (getattr(op, name, 0) for block in self.blocks for op in block.ops for name in names)
        return frozenset(chunk for chunk in chunks if chunk)

    @cached_property
    def windows(self) -> frozenset[int]:
        """Windows of caches and of attention that keeps no cache."""
        found = {cache.window for cache in self.caches} | {op.window for op in self.operations(Attention)}
        return frozenset(window for window in found if window is not None)

    @cached_property
    def text_only_note(self) -> str:
        """What an answer for a batch of text leaves out; empty for a model of text alone."""
        kinds = {block.modality for block in self.blocks}
        others = " or ".join(f"an {kind}" for kind in sorted(kinds - {"text"}))
        if not others or "text" not in kinds or not self.ends_in_text:
            return ""
        return f"a batch of text: what {others} takes in its part of the model and in the prompt is not counted"

    @cached_property
    def describes_images(self) -> bool:
        """Whether what a batch with images runs is described: some block puts them into the prompt."""
        return any(op.joins_images for block in self.blocks for op in block.ops)

    @cached_property
    def packages(self) -> frozenset[str]:
        """What transformers leaves some operations to where it is installed; empty text for all others."""
        return frozenset(op.package for block in self.blocks for op in block.ops)

    @cached_property
    def has_fused_experts(self) -> bool:
        """Whether experts are one tensor of three dimensions."""
        return any(parameter.part == "experts" and len(parameter.shape) == 3 for parameter in self.parameters)

    @cached_property
    def embedding_numel(self) -> int:
        """Values of the largest table that tokens are looked up in by vocabulary; 0 without one."""
        tables = (p.numel for p in self.all_parameters if p.part == "embedding" and p.shard == "vocab")
        return max(tables, default=0)

    @cached_property
    def num_layers(self) -> int:
        """How many blocks repeat; of an encoder-decoder both halves' together."""
        return sum(block.layer is not None for block in self.blocks)

    def layers(self) -> Iterator[Block]:
        """The repeating blocks."""
        return (block for block in self.blocks if block.layer is not None)

    @cached_property
    def logit_width(self) -> int:
        """Columns of the logits: the width of the last block's output."""
        return self.blocks[-1].outputs["logits"].width if "logits" in self.blocks[-1].outputs else 0

    @cached_property
    def hidden_size(self) -> int:
        """Width of the stream that the last block reads: the text's where there is one.

        Raises UnsupportedModelError for a model of which only the weights are described.
        """
        reading = [block.inputs["hidden"] for block in self.blocks if "hidden" in block.inputs]
        read = reading or list(self.blocks[-1].inputs.values())
        if not read:
            kind = self.config.model_type
            raise UnsupportedModelError(f"{self.id or 'model'}: of {kind} only the parameters are described")
        return read[-1].width


_OF_TENSORS = frozenset({"blocks", "all_parameters", "parameters"})


def facts_of(model: Model) -> dict[str, object]:
    """What is read off its blocks, without these: so much that most questions about it never look at them."""
    for name, made in vars(Model).items():
        if isinstance(made, cached_property) and name not in _OF_TENSORS:
            with suppress(VramwiseError):
                getattr(model, name)
    return {name: value for name, value in vars(model).items() if name not in _OF_TENSORS}


def with_late_blocks(facts: Mapping[str, object], blocks: Callable[[], tuple[Block, ...]]) -> Model:
    """A model of these facts, whose blocks are read when somebody asks for them."""
    model = object.__new__(Model)
    vars(model).update(facts, late_blocks=blocks)
    return model


@of_model
def _has(model: Model, kind: type[Operation]) -> bool:
    return any(block.has(kind) for block in model.blocks)
