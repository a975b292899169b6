"""What a kernel is, by its name: its class, its category, and whether it computes on tensor (matrix) cores."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from vramwise.tables import table
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, named_class

NOT_NAMED_NCCL = (
    "multimem_", "all_reduce_kernel", "one_shot_all_reduce", "two_shot_all_reduce", "cross_device_reduce",
    "quick_reduce", "quickreduce", "allreduce_fusion", "lamport", "nvshmem", "deep_ep::", "userbuffers", "msccl",
    "rccl", "oneccl", "all_gather_kernel", "reduce_scatter_kernel",
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
)  # fmt: skip
"""Words, in any case, of communication whose name does not begin with `nccl` or lacks Kernel: symmetric memory, vLLM's
and AITER's all-reduce, FlashInfer's fused one, NVSHMEM, DeepEP, Transformer Engine's user buffers, MSCCL, RCCL; XLA's
operations on TPUs."""

CATEGORIES = (
    ("embedding and indexing", "embedding Embedding index Index gather scatter bounds_check permute_"),
    ("attention", "flash_ fmha Fmha sdpa attention Attention paged_att mla_"),
    ("convolution", "conv wgrad dgrad fprop scudnn winograd im2col igemm_"),
    ("matrix product", "gemm Gemm nvjet_ Cijk_ gemv bmm_ cutlass::Kernel cublas splitKreduce Marlin marlin matmul"),
    ("optimizer", "multi_tensor_apply Adam adam adagrad sgd_ Lamb lion"),
    ("normalization", "norm Norm bn_fw_ bn_bw_ SubTensorOp"),
    ("softmax and loss", "softmax SoftMax Softmax nll_loss cross_entropy CrossEntropy"),
    ("sort and search", "sort Sort topk cub:: thrust::"),
    ("copy and layout", "CatArray copy transpose nchwToNhwc nhwcToNchw Memcpy Memset fill Fill cast Cast"),
    ("element-wise and reduction", "elementwise reduce vectorized triton_"),
)
"""Each with the words of which a name has one; the first that fits counts. (`fbgemm`, a library, is no product.)"""
_CATEGORY_WORDS = tuple((category, tuple(words.split())) for category, words in CATEGORIES)
OLD_TENSOR_CORE_WORDS = (
    "h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "first_layer_wgrad_kernel",
    "conv1x1", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv",
    "xmma_warp_specialized_implicit_gemm", "xmma_gemm", "xmma_sparse_gemm", "c1688",
)  # fmt: skip
"""The words by which PyProf and the TensorBoard plugin 0.4.3 know a tensor-core kernel: a list of 2021."""


class TensorCoreRule(NamedTuple):
    """Names that it fits do or do not compute on tensor cores (`verdict`: yes, no, unknown), and why.

    It fits a name with one of `words` in which `pattern`, where there is one, is found. Looking for words first spares
    most names a regular expression: kernel names are long.
    """

    verdict: str
    words: tuple[str, ...]
    pattern: str
    evidence: str
    example: str

    def fits(self, name: str) -> bool:
        """Whether it is about this name."""
        return _has_one(name, self.words) and (not self.pattern or re.search(self.pattern, name) is not None)


class Kernel(NamedTuple):
    """What a name tells. `communicates` follows our own rule, which knows more names than `nccl…Kernel`."""

    name: str
    category: str
    communicates: bool
    tensor_cores: str
    evidence: str


@cache
def tensor_core_rules() -> tuple[TensorCoreRule, ...]:
    """The rules of tensor_cores.csv; the first that fits decides."""
    return tuple(
        TensorCoreRule(row["verdict"], row.words("words"), row["pattern"], row["evidence"], row["example"])
        for row in table(__file__, "tensor_cores")
    )


@lru_cache(maxsize=4096)
def kernel(name: str) -> Kernel:
    """What is known of a kernel by its name; `unknown` where no rule fits, never a silent no."""
    if named_class(name) == COMMUNICATION or _communicates(name):
        return Kernel(name, "communication", True, "no", "communication")
    plain = name.replace("fbgemm", "fb")
    category = next((what for what, words in _CATEGORY_WORDS if _has_one(plain, words)), "other")
    rule = next((rule for rule in tensor_core_rules() if rule.fits(name)), None)
    if rule is None:
        return Kernel(name, category, False, "unknown", "no rule knows this name")
    return Kernel(name, category, False, rule.verdict, rule.evidence)


@lru_cache(maxsize=4096)
def own_class(name: str) -> int:
    """As `named_class`, with the communication that the plain rule takes for compute."""
    plain = named_class(name)
    return COMMUNICATION if plain == COMPUTE and _communicates(name) else plain


def _communicates(name: str) -> bool:
    lowered = name.lower()
    return lowered.startswith("nccl") or _has_one(lowered, NOT_NAMED_NCCL)


def _has_one(name: str, words: tuple[str, ...]) -> bool:
    for word in words:  # noqa: SIM110 - any() with a generator takes twice as long
        if word in name:
            return True
    return False


def on_old_list(name: str) -> bool:
    """Whether the TensorBoard plugin's list of 2021 calls it a tensor-core kernel."""
    return any(word in name for word in OLD_TENSOR_CORE_WORDS)


def short_name(name: str, length: int = 60) -> str:
    """A kernel's name without return type, arguments and template arguments, cut to `length`."""
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    inner = re.search(r"cutlass::Kernel\d?<([^<>]+)>", text)
    text = inner.group(1) if inner else re.split(r"[<(]", text, maxsplit=1)[0]
    functor = re.search(r"(\w+(?:Functor|Ops|_kernel_cuda|_kernel_impl)\w*)", name.partition("<")[2])
    if functor and text.endswith("kernel") and "at::native" in text:
        text = f"{text.removeprefix('at::native::')} {functor.group(1)}"
    text = text.strip() or name
    return text if len(text) <= length else text[: length - 1] + "…"
