"""What a kernel is, by its name: its class, its category, and whether it computes on tensor (matrix) cores."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, named_class

NOT_NAMED_NCCL = re.compile(
    r"multimem_|all_reduce_kernel|one_shot_all_reduce|two_shot_all_reduce|cross_device_reduce|quick_?reduce|quickreduce"
    r"|allreduce_fusion|lamport|nvshmem|deep_ep::|userbuffers|msccl|rccl|oneccl|all_gather_kernel|reduce_scatter_kernel"
    r"|^nccl",
    re.IGNORECASE,
)
"""Communication whose name does not begin with `nccl` or lacks Kernel: symmetric memory, vLLM's and AITER's all-reduce,
FlashInfer's fused all-reduce, NVSHMEM, DeepEP, Transformer Engine's user buffers, MSCCL, RCCL."""

CATEGORIES = (
    ("communication", NOT_NAMED_NCCL.pattern),
    ("embedding and indexing", r"embedding|Embedding|index|Index|gather|scatter|bounds_check|permute_"),
    ("attention", r"flash_|fmha|Fmha|sdpa|attention|Attention|paged_att|mla_"),
    ("convolution", r"conv|wgrad|dgrad|fprop|scudnn|winograd|im2col|igemm_"),
    ("matrix product", r"(?<!fb)gemm|Gemm|nvjet_|Cijk_|gemv|bmm_|cutlass::Kernel|cublas|splitKreduce|[Mm]arlin|matmul"),
    ("optimizer", r"multi_tensor_apply|Adam|adam|adagrad|sgd_|Lamb|lion"),
    ("normalization", r"norm|Norm|bn_(fw|bw)_|SubTensorOp"),
    ("softmax and loss", r"softmax|SoftMax|Softmax|nll_loss|cross_entropy|CrossEntropy"),
    ("sort and search", r"[sS]ort|topk|cub::|thrust::"),
    ("copy and layout", r"CatArray|copy|transpose|nchwToNhwc|nhwcToNchw|Memcpy|Memset|fill|Fill|cast|Cast"),
    ("element-wise and reduction", r"elementwise|reduce_kernel|reduce|vectorized|triton_"),
)
OLD_TENSOR_CORE_WORDS = (
    "h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "first_layer_wgrad_kernel",
    "conv1x1", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv",
    "xmma_warp_specialized_implicit_gemm", "xmma_gemm", "xmma_sparse_gemm", "c1688",
)  # fmt: skip
"""The words by which PyProf and the TensorBoard plugin 0.4.3 know a tensor-core kernel: a list of 2021."""


@dataclass(frozen=True, slots=True)
class TensorCoreRule:
    """Names that `pattern` finds do or do not compute on tensor cores (`verdict`: yes, no, unknown), and why."""

    verdict: str
    pattern: re.Pattern[str]
    evidence: str
    example: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a name tells. `communicates` follows our own rule, which knows more names than `nccl…Kernel`."""

    name: str
    category: str
    communicates: bool
    tensor_cores: str
    evidence: str


@cache
def tensor_core_rules() -> tuple[TensorCoreRule, ...]:
    """The rules of tensor_cores.csv; the first that fits decides."""
    with open(Path(__file__).parent / "tensor_cores.csv", newline="", encoding="utf-8") as file:
        return tuple(
            TensorCoreRule(row["verdict"], re.compile(row["pattern"]), row["evidence"], row["example"])
            for row in csv.DictReader(file)
        )


@lru_cache(maxsize=4096)
def kernel(name: str) -> Kernel:
    """What is known of a kernel by its name; `unknown` where no rule fits, never a silent no."""
    category = next((what for what, pattern in CATEGORIES if re.search(pattern, name)), "other")
    communicates = named_class(name) == COMMUNICATION or category == "communication"
    if communicates:
        return Kernel(name, "communication", True, "no", "communication")
    rule = next((rule for rule in tensor_core_rules() if rule.pattern.search(name)), None)
    if rule is None:
        return Kernel(name, category, False, "unknown", "no rule knows this name")
    return Kernel(name, category, False, rule.verdict, rule.evidence)


def own_class(name: str) -> int:
    """As `named_class`, with the communication that the plain rule takes for compute."""
    plain = named_class(name)
    return COMMUNICATION if plain == COMPUTE and NOT_NAMED_NCCL.search(name) else plain


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
