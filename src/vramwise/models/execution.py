"""How a model is run: everything that decides which primitive operations there are.

Kernel libraries as overrides: lowerings of their own for classes of operations, and rewrites that make such ones.

A library is one `Kernels` record (`vramwise.kernels`). A run takes the overrides of the libraries in its `Execution`
in place of the lowerings that are registered for those classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from vramwise.errors import UsageError
from vramwise.models.autograd.primitives import Device
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Modality, Operation, Parameter
from vramwise.records import record

Lowered = Callable[..., Tensor | tuple[Tensor, ...]]
"""(run, operation, *tensors) -> tensor or tensors."""
Rewrite = Callable[[Block], Block]

EVERYWHERE: frozenset[Modality] = frozenset({"text", "image", "audio"})


@record
class Override:
    """What a library runs for one class of operations.

    `replaces`: what that is, in words. `fact`: the library's row in type_facts.csv that says for which types of models,
    and `vision_` before it for which of their towers; empty: for all. `rewrite` joins operations of a block to one of
    the class before the block is lowered.
    """

    kind: type[Operation]
    lowering: Lowered
    replaces: str
    fact: str = ""
    rewrite: Rewrite | None = None
    modalities: frozenset[Modality] = EVERYWHERE


@record
class Kernels:
    """A library of kernels.

    `order`: of two that replace one class of operations, the lower one does. `leaves_out`: libraries whose overrides
    are not taken beside this one. `is_alone`: where it replaces anything, no other is taken: layers of a framework's
    own. `loss`: (run, logits) -> loss in place of the model's class's, where it replaces anything. `like`: a library
    whose rows in type_facts.csv hold for it too. `for_adapters`: it replaces nothing without adapters. `told_by`: the
    package by whose version its rows hold, where they say which classes of that take it up.
    """

    name: str
    overrides: tuple[Override, ...]
    order: int
    source: str
    leaves_out: frozenset[str] = frozenset()
    is_alone: bool = False
    loss: Lowered | None = None
    like: str = ""
    for_adapters: bool = False
    told_by: str = ""

    @property
    def replaces(self) -> str:
        """What it replaces, in words."""
        return ", ".join(dict.fromkeys(override.replaces for override in self.overrides))


@lru_cache(maxsize=256)
def overrides_in(kernels: tuple[Kernels, ...], modality: Modality) -> Mapping[type[Operation], Override]:
    """The override of each class of operations in blocks of a modality.

    Raises UsageError where two libraries of the same order replace one class.
    """
    found: dict[type[Operation], tuple[Kernels, Override]] = {}
    kernels = tuple(library for library in kernels if library.is_alone and library.overrides) or kernels
    left_out = frozenset[str]().union(*(library.leaves_out for library in kernels))
    for library in sorted(kernels, key=lambda library: library.order):
        for override in library.overrides:
            if modality not in override.modalities or library.name in left_out:
                continue
            first, _ = found.setdefault(override.kind, (library, override))
            if first is not library and first.order == library.order:
                both, what = f"{first.name} and {library.name}", f"{override.replaces} ({override.kind.__name__})"
                raise UsageError(f"kernels {both} both replace {what}, and neither says that it comes first")
    return {kind: override for kind, (_, override) in found.items()}


def loss_of(kernels: tuple[Kernels, ...]) -> Lowered | None:
    """The loss that one of the libraries runs, None where the model's class runs its own."""
    return next((library.loss for library in kernels if library.overrides and library.loss is not None), None)


def with_rewrites(block: Block, overrides: Mapping[type[Operation], Override]) -> Block:
    """The block with what the overrides' rewrites join."""
    rewritten = block
    for override in overrides.values():
        rewritten = rewritten if override.rewrite is None else override.rewrite(rewritten)
    return block if rewritten is block else _without_lost_names(rewritten)


def _without_lost_names(block: Block) -> Block:
    """Frames have no names for what is inside of operations that were joined."""
    made = {*block.inputs.values(), *(value for op in block.ops for value in op.outputs)}
    ops = (
        replace(op, inputs=tuple(value for value in op.inputs if value in made)) if op.only_names else op
        for op in block.ops
    )
    return replace(block, ops=tuple(ops))


@record
class Lora:
    """Low-rank adapters: rank, what they wrap, dropout, dtype, magnitudes of DoRA.

    `targets`: paths, or ends of paths, of linear layers, and of the parameters of routers and of experts that are one
    tensor, or of the modules that own those.
    """

    rank: int
    targets: frozenset[str]
    dropout: float = 0.0
    dtype: str = "fp32"
    dora: bool = False

    def wraps(self, weight: Parameter) -> bool:
        """Whether a weight has adapters, by the path of its module or by its own."""
        return self.wraps_module(weight) or any(end in self.targets for end in _ends(weight.name))

    def wraps_module(self, weight: Parameter) -> bool:
        """Whether the module of a weight is named."""
        return any(end in self.targets for end in _ends(weight.module))


def _ends(path: str) -> Iterator[str]:
    """`a.b.c`, `b.c`, `c`."""
    while path:
        yield path
        path = path.partition(".")[2]


@record
class Images:
    """Images of a batch: `per_sequence` for each row, each `tiles` inputs of the tower of `rows` × `columns` patches.

    `tokens`: what one image takes of the prompt. `dtype`: that of the pixels, the parameters' where it is empty.
    `padded_to`: patches to which an input of the tower is padded, 0 where it is not. `last_grid`: rows and columns of
    the last input, where those are others. `pixels`: height and width of an input that is no whole number of patches.
    """

    per_sequence: int
    rows: int
    columns: int
    tokens: int
    tiles: int = 1
    dtype: str = ""
    padded_to: int = 0
    last_grid: tuple[int, int] | None = None
    pixels: tuple[int, int] | None = None

    @property
    def grids(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each input of the tower that one image makes."""
        own = (self.rows, self.columns)
        return (own,) * self.tiles if self.last_grid is None else ((own,) * (self.tiles - 1) + (self.last_grid,))

    @property
    def patches(self) -> int:
        """Patches of one input of the tower."""
        return self.rows * self.columns


@record
class Execution:
    """The structure of a forward pass; sizes (batch, sequence) are not part of it.

    `trainable`: None when every parameter trains, else the name pieces of those that do (with `lora`, only adapters
    and those). `padding`: a padding mask is passed. `padding_share`: how much of a batch is padding, which flash
    attention leaves out. `documents`: rows hold several samples, which a mask keeps from seeing one another.
    `mask_form`: SDPA gets a mask of booleans, one of floats that all layers share, or the batch brings the latter.
    `always_masked`: it gets one for any batch. `types_gaining_sdpa`: types whose class has SDPA here, though not in
    every version of transformers; it leaves out a cap on scores.
    `wide_softmax`: T5's eager attention widens scores to fp32, as before transformers 5.15.
    `dropout`: the config's dropouts are active (training mode).
    `use_cache`: keys and values pass through a `DynamicCache`, which copies them. `sdpa_backend` overrides the kernel
    that SDPA's dispatcher would choose. `quantized_compute`: the dtype in which the linear layers of a quantized base
    compute; they answer in their input's. `narrow_parts`: other parts whose parameters are of that dtype.
    `copied_dtype`: of base weights that train beside adapters, where it is not that of the others.
    `images`: None for a batch of text. `fewest_routed`: experts of a limited capacity drop as many tokens as they can.
    `expert_modules`: frozen experts are modules that run one after another, as before transformers 5.
    `flash_repeats_heads`: keys and values are copied to all heads before flash attention. `sdpa_repeats_heads`: before
    SDPA, too. `sdpa_copies_inputs`: text's queries, keys and values lie in a row of their own for SDPA.
    `inputs_require_grad`: embedded tokens are a leaf that wants a gradient (`enable_input_require_grads`).
    `patches_require_grad`: so are an image's patches, where their class names what makes them (`_input_embed_layer`).
    `checkpoints`: modules know that layers are checkpointed (their `gradient_checkpointing`).
    `kernels`: libraries whose kernels run in place of operations.
    """

    param_dtype: str = "bf16"
    autocast: str | None = None
    attention: Literal["eager", "sdpa", "flash"] = "sdpa"
    device: Device = "cuda"
    padding: bool = False
    padding_share: float = 0.0
    documents: bool = False
    mask_form: Literal["bool", "float", "given"] = "bool"
    always_masked: bool = False
    types_gaining_sdpa: frozenset[str] = frozenset()
    wide_softmax: bool = False
    dropout: bool = True
    trainable: tuple[str, ...] | None = None
    lora: Lora | None = None
    sdpa_backend: str = "auto"
    use_cache: bool = False
    loss: str = "standard"
    images: Images | None = None
    fewest_routed: bool = False
    quantized_compute: str | None = None
    narrow_parts: frozenset[str] = frozenset()
    copied_dtype: str | None = None
    expert_modules: bool = False
    flash_repeats_heads: bool = False
    sdpa_repeats_heads: bool = False
    sdpa_copies_inputs: bool = False
    inputs_require_grad: bool = False
    patches_require_grad: bool = False
    checkpoints: bool = False
    kernels: tuple[Kernels, ...] = ()

    @property
    def hands_out_masks(self) -> bool:
        """Whether attention gets a mask for what the batch holds or for any batch, not for a window alone."""
        return self.padding or self.documents or self.always_masked

    @property
    def positions_by_row(self) -> bool:
        """Whether the batch brings positions, which begin anew at other tokens in every row."""
        return self.documents and self.mask_form == "bool"

    def quantizes(self, parameter: Parameter) -> bool:
        """Whether a weight is one that a quantizer of linear layers replaces."""
        linear = parameter.is_linear or (self.expert_modules and parameter.part == "experts")
        return self.quantized_compute is not None and linear and parameter.layer is not None

    def dtype_of(self, parameter: Parameter) -> str:
        """The dtype of a parameter, of a quantized one that of its copy in products."""
        if self.copied_dtype is not None and self.trains(parameter.name):
            return self.copied_dtype
        is_narrow = self.quantizes(parameter) or parameter.part in self.narrow_parts
        return self.quantized_compute or self.param_dtype if is_narrow else self.param_dtype

    def trains(self, parameter_name: str) -> bool:
        """Whether a parameter of the base model gets a gradient."""
        if self.trainable is None:
            return self.lora is None
        return any(piece in parameter_name for piece in self.trainable)
