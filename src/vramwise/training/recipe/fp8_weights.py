"""8-bit copies of weights that Transformer Engine keeps, and weights that are 8-bit themselves.

A product needs its weight in 8 bits along rows for forward and along columns for the gradient of its input:

| recipe               | before Blackwell         | since Blackwell          | scales of each copy   |
|----------------------|--------------------------|--------------------------|-----------------------|
| delayed, tensorwise  | both, as a transpose     | one serves both          | one for a tensor      |
| blockwise            | both                     | both                     | 4 bytes for 128 · 128 |
| mxfp8                | does not run             | both                     | 1 byte for 32         |

(transformer_engine 2.14 pytorch/tensor/float8_tensor.py `update_usage` with `is_non_tn_fp8_gemm_supported`,
float8_blockwise_tensor.py, mxfp8_tensor.py.) Weights of 16 bits have their copies beside them: Megatron keeps these
from step to step, as it passes `is_first_microbatch` (core 0.16 extensions/transformer_engine.py, without
disable_parameter_transpose_cache; module/base.py `get_weight_workspace`). Weights that are stored in 8 bits
(`param_dtype` fp8: --fp8-param-gather, fp8_model_init) are one copy and have the transpose beside it.

Only products inside layers have them: embedding, norms, router and output layer stay as they are. Not counted: amax
histories and tensors' scales (some KiB), layers at both ends that stay in 16 bits (--first-last-layers-bf16).
"""

from __future__ import annotations

from vramwise.errors import ScenarioError
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import followed, torch_version
from vramwise.models.blocks import Parameter
from vramwise.scenario import TrainSettings
from vramwise.training.resolved import ResolvedTrain

_PARTS = frozenset({"attention", "mlp", "experts", "mixer"})
_SCALE_BYTES = {"mxfp8": (1, 32), "blockwise": (4, 128 * 128)}
BOTH_DIRECTIONS = frozenset({"blockwise", "mxfp8"})


def has_transformer_engine(train: TrainSettings) -> bool:
    """Whether Transformer Engine runs the layers' products, in whatever precision."""
    return "transformer-engine" in (*train.kernels, *framework_of(train).kernels)


def runs_transformer_engine(train: TrainSettings) -> bool:
    """Whether Transformer Engine runs the layers' products in 8 bits."""
    return train.precision == "fp8-mixed" and has_transformer_engine(train)


def runs_torchao(train: TrainSettings) -> bool:
    """Whether torchao's Float8Linear runs the layers' products in 8 bits."""
    return train.precision == "fp8-mixed" and not has_transformer_engine(train)


INPUTS_IN_16_BITS_SINCE, WEIGHTS_IN_16_BITS_SINCE = (0, 9), (0, 13)
PARAMETERS_ARE_FREE_SINCE = (2, 8)


def kept_in_8_bits(train: TrainSettings) -> tuple[bool, bool]:
    """Whether torchao's products keep their inputs, and their weights, in 8 bits for backward.

    With one scale a tensor torchao keeps both in 8 bits before 0.9, weights alone before 0.13, then neither (0.6.1 to
    0.18 float8/float8_linear.py, `save_for_backward`; 0.12 is the last to hand on a cast weight). What is compiled
    keeps what costs least instead: inputs in 8 bits, and weights too until torch 2.8, which knows that parameters are
    there anyway (_functorch/config.py treat_parameters_as_free_to_save; torchao issue 2251). `recomputed` is torchao's
    force_recompute_fp8_weight_in_bwd. Row-wise scales are others along the other axis: nothing of them serves backward.
    """
    if train.fp8_operands is not None:
        return train.fp8_operands != "none", train.fp8_operands == "saved"
    if (train.fp8_recipe or "tensorwise") != "tensorwise":
        return False, False
    if train.compile and train.compiled != ("loss",):
        return True, torch_version(train) < PARAMETERS_ARE_FREE_SINCE
    version = followed(train, "torchao") or WEIGHTS_IN_16_BITS_SINCE
    return version < INPUTS_IN_16_BITS_SINCE, version < WEIGHTS_IN_16_BITS_SINCE


def gathered_width(parameter: Parameter, train: TrainSettings, width: int) -> int:
    """Bytes of a value of a weight as FSDP gathers it, `width` where nothing is in 8 bits."""
    return 1 if train.fp8_all_gather and runs_torchao(train) and multiplies_in_8_bits(parameter) else width


def is_8_bit(dtype: str | None) -> bool:
    """Whether a weight's dtype has 8 bits."""
    return (dtype or "").startswith("fp8")


def products_in(train: TrainSettings, implied: str) -> str:
    """The dtype of what is computed beside 8-bit products, which are a precision of their own.

    Raises `ScenarioError` for 8 bits where they mean nothing.
    """
    wide = "expected bf16, fp16 or fp32"
    if is_8_bit(train.lora_dtype):
        raise ScenarioError("train.lora_dtype", f'adapters do not train in "{train.lora_dtype}"; {wide}')
    trains_them = train.method not in ("lora", "qlora") and not runs_transformer_engine(train)
    if is_8_bit(train.param_dtype) and trains_them:
        what = f'"{train.param_dtype}" weights train under Transformer Engine alone'
        how = 'precision = fp8-mixed with framework = megatron or kernels = ["transformer-engine"]'
        raise ScenarioError("train.param_dtype", f"{what} ({how}); {wide}")
    if not is_8_bit(train.compute_dtype):
        return train.compute_dtype or implied
    if train.precision == "fp8-mixed":  # its products are in 8 bits; all else is computed in 16
        return implied
    raise ScenarioError("train.compute_dtype", f"products in 8 bits are precision = fp8-mixed; {wide}")


def multiplies_in_8_bits(parameter: Parameter) -> bool:
    """Whether a product with this weight runs in 8 bits: matrices of the layers, routers apart."""
    in_layer = parameter.layer is not None and parameter.part in _PARTS
    return in_layer and (parameter.is_linear or (parameter.part == "experts" and len(parameter.shape) == 3))


def stored_dtype(parameter: Parameter, train: ResolvedTrain) -> str:
    """A weight's own dtype: 8 bits only for what multiplies in 8 bits."""
    if is_8_bit(train.param_dtype) and not multiplies_in_8_bits(parameter):
        return train.compute_dtype
    return train.param_dtype


def copy_bytes(parameter: Parameter, numel: int, train: ResolvedTrain) -> int:
    """Bytes of 8-bit copies, transposes and scales that stay beside `numel` values of a weight."""
    stays = framework_of(train).casts.caches_8_bit_weights or is_8_bit(train.param_dtype)
    if not runs_transformer_engine(train) or not stays or not multiplies_in_8_bits(parameter):
        return 0
    own = 1 if is_8_bit(train.param_dtype) else 0
    return all_copies_bytes(numel, train) - own * numel


def all_copies_bytes(numel: int, train: ResolvedTrain) -> int:
    """Bytes of the 8-bit values that products need of `numel` values of a weight, with their scales."""
    directions = 2 if train.fp8_transposes else 1
    scales, values = _SCALE_BYTES.get(train.fp8_recipe or "", (0, 1))
    return directions * (numel + numel * scales // values)


def default_recipe(compute_capability: str | None) -> str:
    """Transformer Engine's own choice by GPU (2.14 pytorch/quantization.py)."""
    capability = _version(compute_capability)
    if capability < (10, 0):
        return "delayed"
    return "mxfp8" if capability < (12, 0) else "tensorwise"


def keeps_transposes(recipe: str, compute_capability: str | None) -> bool:
    """Whether both directions are kept on a GPU (unknown: as on Hopper).

    One copy serves both where products take either layout (common/transformer_engine.cpp,
    nvte_is_non_tn_fp8_gemm_supported).
    """
    capability = _version(compute_capability)
    either_layout = (10, 0) <= capability < (12, 0) or capability >= (13, 0)
    return recipe in BOTH_DIRECTIONS or not either_layout


def _version(compute_capability: str | None) -> tuple[int, int]:
    major, _, minor = (compute_capability or "9.0").partition(".")
    return (int(major), int(minor or 0)) if major.isdigit() else (9, 0)
