"""What kernels add to experts in MXFP4: rows and columns up to the sizes that they multiply by."""

from __future__ import annotations

from collections.abc import Iterable

from vramwise.models import Block
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Node
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.weights import Layout
from vramwise.units import round_up

HOPPER = 9.0
TRITON_MXFP4_VERSION = (0, 11)
TRITON_HOPPER_VERSION = (0, 13)  # Triton's kernels on 9.0 to 10.x alone; before on everything from 9.0 on
TRITON_SHIPPED_VERSION = (
    0,
    12,
)  # third_party/triton_kernels of its wheel; those of 0.11.0 to 0.11.2 have none
MARLIN_INTERMEDIATE, FLASHINFER_INTERMEDIATE, TRITON_INTERMEDIATE, PADDED_HIDDEN = 128, 256, 256, 256
ROCM_VERSION, ROCM_MULTIPLE, GFX942_VERSIONS, GFX942_MULTIPLE = (0, 11), 256, ((0, 11, 1), (0, 20)), 128
MXFP4_BITS = 4.25  # with one 8-bit scale for 32 values

_MXFP4 = "vLLM quantization/mxfp4.py create_weights; logs of gpt-oss on H100, A100 (0.10.1), H100 (0.11.0) and GB10"
_ROCM = (
    "vLLM quantization/mxfp4.py create_weights: 256 in 0.11.0; 0.11.1 to 0.18.1 get_padding_alignment: 256 on gfx950, "
    "else 128; 0.20.0 to 0.26.0 fused_moe/oracle/mxfp4.py: 256"
)


def expert_padding(
    layers: Iterable[Block],
    storage: Storage,
    layout: Layout,
    version: tuple[int, ...],
    capability: float | None,
    gfx: str,
) -> Node | None:
    """Marlin, FlashInfer (10.x) and AMD's kernels pad both sizes with their scales, Triton's the inner size alone.

    Up to 0.11 Triton's kernels are a package that may be there or not, and Marlin's take their place (65.97 GiB of
    gpt-oss-120b, where they take 64.38).
    """
    rule = storage.quantization
    if rule is None or rule.layout != "mxfp4":
        return None
    experts = [_Experts(op, layout) for block in layers for op in block.operations(ExpertMlps)]
    if gfx.startswith("gfx9") and version >= ROCM_VERSION:
        is_small = gfx != "gfx950" and GFX942_VERSIONS[0] <= version < GFX942_VERSIONS[1]
        multiple = GFX942_MULTIPLE if is_small else ROCM_MULTIPLE
        added = sum(one.padded(multiple, multiple) for one in experts)
        return _node(added, added, _ROCM)
    if capability is None:
        return None
    kernel = _mxfp4_kernel(version, capability)
    marlin = sum(one.padded(MARLIN_INTERMEDIATE, PADDED_HIDDEN) for one in experts)
    if kernel == "triton":
        added = sum(one.widened(TRITON_INTERMEDIATE, rule.bits) for one in experts)
        return _node(added, added if version >= TRITON_SHIPPED_VERSION else max(added, marlin), _MXFP4)
    if kernel == "flashinfer":
        marlin = sum(one.padded(FLASHINFER_INTERMEDIATE, PADDED_HIDDEN) for one in experts)
    return _node(marlin, marlin, _MXFP4)


class _Experts:
    """The experts of one layer on one rank."""

    def __init__(self, op: ExpertMlps, layout: Layout) -> None:
        self.hidden = op.inputs[0].width
        self.inner = op.inner_width // layout.cut.expert_tensor_parallel_size
        self.matrices = 3 * -(-op.num_experts // layout.cut.expert_parallel_size)

    def padded(self, inner_multiple: int, hidden_multiple: int) -> int:
        whole = round_up(self.inner, inner_multiple) * round_up(self.hidden, hidden_multiple)
        return round(self.matrices * (whole - self.inner * self.hidden) * MXFP4_BITS / 8)

    def widened(self, multiple: int, bits: int) -> int:
        return self.matrices * (round_up(self.inner, multiple) - self.inner) * self.hidden * bits // 8


def _node(added: int, most: int, source: str) -> Node | None:
    if not most:
        return None
    return Node("expert padding", added, "derived", added, most,
                formula="rows and columns up to the kernel's multiples", source=source)  # fmt: skip


def _mxfp4_kernel(version: tuple[int, ...], capability: float) -> str:
    """Which kernels run the experts (quantization/mxfp4.py get_mxfp4_backend of 0.11.2, 0.13.0 and 0.16.0)."""
    if version < TRITON_MXFP4_VERSION or capability < HOPPER:
        return "marlin"
    if int(capability) == 10:
        return "flashinfer"
    return "marlin" if version >= TRITON_HOPPER_VERSION and capability >= 11 else "triton"
