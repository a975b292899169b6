"""Cuts out of a llama.cpp tree what CUDA and Vulkan do to a graph before memory is dealt out.

    python optimizers.py LLAMA_CPP > optimizers.inc

`reservations.cpp` includes what is printed (-DOPTIMIZERS='"optimizers.inc"') and plays the part of those backends: the
functions are the tree's own, only the backends' contexts are stand-ins.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CUDA = (
    "struct ggml_cuda_topk_moe_args", "bool ggml_cuda_should_use_topk_moe", "static bool ggml_cuda_topk_moe_fusion",
    "struct ggml_cuda_moe_weighted_reduction_match", "static bool ggml_cuda_match_moe_weighted_reduction",
)  # fmt: skip
VULKAN = ("int ggml_vk_unary_mul_op_index", "static bool ggml_vk_can_fuse_unary_mul", "ggml_vk_graph_optimize")
CONTEXT = """
struct stand_in_device { bool disable_graph_optimize = false; };
struct ggml_backend_vk_context { stand_in_device * device; };
static stand_in_device no_device;
static ggml_backend_vk_context no_context = {&no_device};
#define VK_LOG_DEBUG(...)
"""


def definition(text: str, head: str) -> str:
    """A function or a structure from its first line to its last brace; "" where the text has none."""
    for found in re.finditer(rf"^[^\n/]*{re.escape(head)}\b[^;{{]*\{{", text, re.MULTILINE):
        depth, place = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        return text[found.start() : place] + (";" if "struct" in head else "")
    return ""


def cuda_of(tree: Path) -> str:
    source = tree / "ggml/src/ggml-cuda"
    text = "".join((source / name).read_text("utf-8") for name in ("topk-moe.cuh", "topk-moe.cu", "ggml-cuda.cu"))
    parts = [definition(text, head) for head in CUDA]
    most = re.search(r"^static constexpr int MOE_WEIGHTED_REDUCTION_MAX_EXPERTS.*$", text, re.MULTILINE)
    whole = definition(text, "static void ggml_backend_cuda_graph_optimize")
    fused, _, _ = whole.partition("#ifdef USE_CUDA_GRAPH")  # what follows GGML_CUDA_GRAPH_OPT turns on
    fused = "\n".join(line for line in fused.splitlines() if "ggml_backend_cuda_context" not in line)
    return "\n".join([most.group() if most else "", *parts, fused + "}"])


def vulkan_of(tree: Path) -> str:
    text = "\n".join(file.read_text("utf-8") for file in sorted((tree / "ggml/src/ggml-vulkan").glob("ggml-vulkan*.*")))
    patterns = re.findall(r"^static constexpr std::initializer_list<ggml_op> .*?;", text, re.MULTILINE | re.DOTALL)
    return "\n".join([CONTEXT, *patterns, *(definition(text, head) for head in VULKAN)])


if __name__ == "__main__":
    print("#include <algorithm>\n#include <initializer_list>\n#include <set>\n#include <vector>")
    print(cuda_of(Path(sys.argv[1])), vulkan_of(Path(sys.argv[1])), sep="\n")
