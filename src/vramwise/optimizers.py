"""Bytes that each optimizer keeps for a trained tensor, and what its step needs for a moment.

For a tensor of shape (rows, columns), n = rows · columns, z = bytes of one state:

    adamw              2 n z                                                          torch 2.13 optim/adamw.py
    paged-adamw        8 n, whatever the weights are in                                                   [bnb]
    adamw-8bit, paged  2 (n + 4 ⌈n/256⌉); under 4,096 values, and embeddings in Trainer: 8 n        [bnb], [hf]
    torchao-adamw-*    8bit 2 (n + 4 n/256 + 1,024), 4bit 2 (n/2 + 4 n/128 + 64), fp8 2 (n + 4 n/256); tensors
                       under 4,096 values or no multiple of a block: 2 n p                                 [torchao]
    adafactor          4 (rows + columns) for each matrix, 4 n for a vector                                [hf]
    sgd, lomo, none    0                                         torch 2.13 optim/sgd.py; LOMO arXiv 2306.09782
    sgd-momentum, lion n z                                                       optim/sgd.py; arXiv 2302.06675
    lion-8bit          n + 4 ⌈n/256⌉; under 4,096 values 4 n                                              [bnb]
    muon               hidden matrices: as many bytes as the gradient; else as adamw  torch 2.13 optim/_muon.py
    adam-mini          n z + z a block: q, k by head, everything else by row                   arXiv 2406.16793
    galore-adamw       linear layers 2 z r max and the projector, r = 128; else as adamw             [hf], [galore]
    apollo             linear layers 2 z r max and p r min, r = 128; else as adamw                   [hf], [apollo]

[bnb] bitsandbytes 0.50 optim/optimizer.py: block 256, min_8bit_size 4096
[hf] transformers 5.23 optimization.py (Adafactor), trainer_optimizer.py (GaLore, APOLLO), trainer.py (embeddings)
[torchao] torchao 0.18 optim/adam.py, subclass_8bit.py, subclass_4bit.py, subclass_fp8.py
[galore] galore_torch 1.0 galore_projector.py: p r min, but of fp32 weights a view of min² singular vectors
[apollo] apollo_torch 1.0.3 random_projector.py; p: bytes of a weight's value

Not counted: step counters on the CPU, code tables of 8-bit states (2 KiB), bitsandbytes' paged states on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from vramwise.errors import UnknownNameError, nearest
from vramwise.records import record

BLOCKWISE_BLOCK_SIZE = 256
MIN_8BIT_NUMEL = 4096
MIN_PAGED_NUMEL = 100_000
LOW_RANK = 128
_TORCHAO = {"torchao-adamw-8bit": (8, 256, 256), "torchao-adamw-4bit": (4, 128, 16), "torchao-adamw-fp8": (8, 256, 0)}
"""Bits of a value, values of a block, entries of a state's code table."""
_TORCHAO_SPELLINGS = {"torchao-adamw-8bit": ("adamw_torch_8bit",), "torchao-adamw-4bit": ("adamw_torch_4bit",)}
_IN_8_BITS = frozenset({"adamw-8bit", "paged-adamw-8bit", "lion-8bit"})
_HIDDEN_PARTS = frozenset({"attention", "mlp", "experts", "mixer"})


@record
class TrainedTensor:
    """A tensor that the optimizer is given: its shape, dtype sizes and where it sits in the model.

    `grad_bytes`: 0 where no gradient comes; optimizers pass over it then (torch 2.13 optim/adamw.py `_init_group`).
    """

    name: str
    shape: tuple[int, ...]
    part: str
    is_linear: bool
    param_bytes: int
    grad_bytes: int
    state_bytes: int
    head_dim: int = 1

    @property
    def numel(self) -> int:
        """Values: the product of its sizes."""
        return prod(self.shape)


Kept = Callable[[TrainedTensor, bool], tuple[int, ...]]
"""Bytes of each tensor kept for a trained one; the second argument: whether embeddings' states stay fp32."""
Step = Callable[[Sequence[TrainedTensor], str], int]
"""Bytes that a step over some tensors, of which there is one at least, allocates and frees under an implementation."""


@record
class Rule:
    """What an optimizer keeps for each trained tensor, what its step takes for a moment, how else people write it."""

    keeps: Kept
    steps: Step
    spellings: tuple[str, ...] = ()


def state_format(optimizer: str, dtype: str | None) -> str | None:
    """How the states are stored, in words; `dtype`: that of states without a format of the optimizer's own, or None."""
    if optimizer in _IN_8_BITS:
        wide = f"fp32 below {MIN_8BIT_NUMEL:,}, and embeddings in Trainer"
        return f"8 bits with a scale for {BLOCKWISE_BLOCK_SIZE} values ({wide})"
    if optimizer == "paged-adamw":
        return "fp32"
    if optimizer in _TORCHAO:
        return f"{optimizer.rpartition('-')[2]} with a scale for {_TORCHAO[optimizer][1]} values"
    return dtype


def kept_bytes(optimizer: str, tensor: TrainedTensor, *, fp32_embeddings: bool = False) -> tuple[int, ...]:
    """Bytes of each tensor that `optimizer` keeps for one trained tensor (see the module's table).

    Raises `UnknownNameError` for an optimizer without a rule.
    """
    keeps = _rule(optimizer).keeps
    return keeps(tensor, fp32_embeddings) if tensor.grad_bytes else ()


def is_paged(optimizer: str, tensor: TrainedTensor) -> bool:
    """Whether the states live in managed memory, which torch's counters do not see."""
    return optimizer.startswith("paged") and tensor.numel >= MIN_PAGED_NUMEL


def step_transient_bytes(
    optimizer: str, implementation: str, tensors: Sequence[TrainedTensor], *, released: bool = False
) -> int:
    """Bytes that one step allocates and frees, beyond parameters, gradients and states.

    AdamW `foreach`: square roots of all second moments; `for-loop`: two temporaries of the largest tensor; `fused`,
    bitsandbytes and torchao (which compiles its step): none. Adafactor: four fp32 tensors of the largest 16-bit
    parameter, two where it is fp32 already. Muon: the update, its orthogonal form and two Gram matrices of the largest
    hidden matrix. LOMO, in backward (`released`): gradient and weight in fp32 (lomo-optim 0.1.1 lomo.py, fuse_update).

    Raises `UnknownNameError` for an optimizer without a rule.
    """
    rule, tensors = _rule(optimizer), [tensor for tensor in tensors if tensor.grad_bytes]
    if released and optimizer == "lomo":
        return max((8 * t.numel for t in tensors if t.param_bytes < 4), default=0)
    return rule.steps(tensors, implementation) if tensors else 0


# -- what is kept ------------------------------------------------------------------------------------------


def _nothing(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
    return ()


def _one_moment(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
    return (tensor.numel * tensor.state_bytes,)


def _two_moments(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
    return (tensor.numel * tensor.state_bytes,) * 2


def _two_moments_in_fp32(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
    return (4 * tensor.numel,) * 2


def _eight_bit(moments: int) -> Kept:
    def keeps(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
        n = tensor.numel
        if n < MIN_8BIT_NUMEL or (fp32_embeddings and tensor.part == "embedding"):
            return (4 * n,) * moments
        return (n, 4 * -(-n // BLOCKWISE_BLOCK_SIZE)) * moments

    return keeps


def _torchao(optimizer: str) -> Kept:
    bits, block, codes = _TORCHAO[optimizer]

    def keeps(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
        n = tensor.numel
        if n < MIN_8BIT_NUMEL or n % block:
            return (n * tensor.param_bytes,) * 2
        kept = (n * bits // 8, 4 * (n // block), 4 * codes)
        return tuple(size for size in kept if size) * 2

    return keeps


def _adafactor(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
    if len(tensor.shape) < 2:
        return (4 * tensor.numel,)
    *outer, rows, columns = tensor.shape
    return (4 * prod(outer) * rows, 4 * prod(outer) * columns)


def _is_hidden_matrix(tensor: TrainedTensor) -> bool:
    return len(tensor.shape) == 2 and tensor.part in _HIDDEN_PARTS


def _muon(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
    if _is_hidden_matrix(tensor):
        return (tensor.numel * tensor.grad_bytes,)
    return _two_moments(tensor, fp32_embeddings)


def _adam_mini(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
    return (tensor.numel * tensor.state_bytes, _mini_blocks(tensor) * tensor.state_bytes)


def _mini_blocks(tensor: TrainedTensor) -> int:
    """Blocks that share one second moment."""
    if len(tensor.shape) < 2:
        return 1
    rows = tensor.shape[-2] * prod(tensor.shape[:-2])
    if any(name in tensor.name for name in ("q_proj", "k_proj", "query", "key")):
        return -(-rows // tensor.head_dim)
    return rows


def _low_rank(*, whole_basis: bool) -> Kept:
    """Moments of LOW_RANK columns and a projector; `whole_basis`: of fp32 weights all singular vectors are kept."""

    def keeps(tensor: TrainedTensor, fp32_embeddings: bool) -> tuple[int, ...]:
        if not (_is_hidden_matrix(tensor) and tensor.is_linear):
            return _two_moments(tensor, fp32_embeddings)
        long, short = max(tensor.shape), min(tensor.shape)
        rank = min(LOW_RANK, short)
        projector = short * (short if whole_basis and tensor.param_bytes == 4 else rank)
        return (long * rank * tensor.state_bytes,) * 2 + (projector * tensor.param_bytes,)

    return keeps


# -- what a step takes -------------------------------------------------------------------------------------


def _in_one_kernel(tensors: Sequence[TrainedTensor], implementation: str) -> int:
    return 0


def _adamw_step(tensors: Sequence[TrainedTensor], implementation: str) -> int:
    if implementation == "foreach":
        return sum(t.numel * t.state_bytes for t in tensors)
    return _one_by_one(tensors, implementation)


def _one_by_one(tensors: Sequence[TrainedTensor], implementation: str) -> int:
    return 0 if implementation == "fused" else max(2 * t.numel * t.state_bytes for t in tensors)


def _adafactor_step(tensors: Sequence[TrainedTensor], implementation: str) -> int:
    return max(t.numel * 4 * (4 if t.param_bytes < 4 else 2) for t in tensors)


def _muon_step(tensors: Sequence[TrainedTensor], implementation: str) -> int:
    return max(_newton_schulz_bytes(t) for t in tensors)


def _newton_schulz_bytes(tensor: TrainedTensor) -> int:
    if not _is_hidden_matrix(tensor):
        return 2 * tensor.numel * tensor.state_bytes
    gram = min(tensor.shape) ** 2
    return tensor.numel * (tensor.grad_bytes + 4) + 4 * gram


# -- the table ---------------------------------------------------------------------------------------------

RULES: dict[str, Rule] = {
    "adamw": Rule(_two_moments, _adamw_step, ("adam", "adamw_torch", "adamw_torch_fused", "adamw_hf")),
    "adamw-8bit": Rule(_eight_bit(2), _in_one_kernel, ("adam-8bit", "adamw_bnb_8bit", "8bit-adamw")),
    "paged-adamw": Rule(_two_moments_in_fp32, _in_one_kernel, ("paged-adamw32bit", "paged-adamw-32bit")),
    "paged-adamw-8bit": Rule(_eight_bit(2), _in_one_kernel, ("paged-adamw8bit",)),
    **{name: Rule(_torchao(name), _in_one_kernel, _TORCHAO_SPELLINGS.get(name, ())) for name in _TORCHAO},
    "adafactor": Rule(_adafactor, _adafactor_step),
    "sgd": Rule(_nothing, _in_one_kernel),
    "sgd-momentum": Rule(_one_moment, _in_one_kernel),
    "lion": Rule(_one_moment, _in_one_kernel),
    "lion-8bit": Rule(_eight_bit(1), _in_one_kernel),
    "muon": Rule(_muon, _muon_step),
    "adam-mini": Rule(_adam_mini, _one_by_one),
    "galore-adamw": Rule(_low_rank(whole_basis=True), _one_by_one, ("galore_adamw",)),
    "apollo": Rule(_low_rank(whole_basis=False), _one_by_one),
    "lomo": Rule(_nothing, _in_one_kernel),
    "none": Rule(_nothing, _in_one_kernel),
}
"""Every optimizer that a scenario may name, the default first."""


def has_implementations(optimizer: str) -> bool:
    """Whether foreach, for-loop and fused are ways of stepping it."""
    return _rule(optimizer).steps in (_adamw_step, _one_by_one)


def _rule(optimizer: str) -> Rule:
    if optimizer not in RULES:
        raise UnknownNameError("optimizer", optimizer, nearest(optimizer, RULES))
    return RULES[optimizer]
