"""How a model is run: everything that decides which primitive operations there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from vramwise.models.autograd.primitives import Device
from vramwise.models.blocks import Parameter
from vramwise.models.overrides import Kernels
from vramwise.records import record


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
