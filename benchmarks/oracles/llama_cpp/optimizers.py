"""Cuts out of a llama.cpp tree what CUDA, Vulkan and Metal do to a graph before memory is dealt out.

    python optimizers.py LLAMA_CPP [TREE_OF_METAL] > optimizers.inc

`reservations.cpp` includes what is printed (-DOPTIMIZERS='"optimizers.inc"') and plays the part of those backends: the
functions are the tree's own, only the backends' contexts are stand-ins. Metal's files are included whole, so that the
tree's ggml/src/ggml-metal belongs to the include path; they may be an older tree's.
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
METAL = (
    "static bool ggml_metal_op_flash_attn_ext_use_kv_f16", "static int ggml_metal_op_flash_attn_ext_n_kv_max_sparse",
    "static bool ggml_metal_op_flash_attn_ext_v_is_view_of_k",
    "static size_t ggml_metal_op_flash_attn_ext_kv_f16_k_size", "bool ggml_metal_op_flash_attn_ext_use_vec",
    "size_t ggml_metal_op_flash_attn_ext_extra_pad",
    "size_t ggml_metal_op_flash_attn_ext_extra_blk", "size_t ggml_metal_op_flash_attn_ext_extra_tmp",
    "size_t ggml_metal_op_flash_attn_ext_extra_kv_f16", "size_t ggml_metal_op_flash_attn_ext_extra_idx",
    "size_t ggml_metal_op_mul_mat_id_extra_tpe", "size_t ggml_metal_op_mul_mat_id_extra_ids",
    "size_t ggml_metal_op_mul_mat_id_extra_amax",
)  # fmt: skip
METAL_START = """
#include "ggml-metal-impl.h"
#include "ggml-metal-common.cpp"
#if __has_include("ggml-metal-fusion.cpp")
#include "ggml-metal-fusion.cpp"
#else
#include "ggml-metal-device.h"
#define ggml_metal_fusion_add_alloc_deps(...)
#endif
ggml_metal_buffer_id ggml_metal_buffer_get_id(ggml_metal_buffer_t, const ggml_tensor *) { return {}; }
// Buffers without memory: all tensors of a cache would lie at one address, in each other's way.
static void metal_graph_optimize(ggml_backend_t, ggml_cgraph * graph, ggml_backend_graph_optimize_params * params) {
    std::map<ggml_tensor *, ggml_backend_buffer_t> held;
    auto hide = [&](ggml_tensor * t) {
        for (; t; t = t->view_src) { if (held.emplace(t, t->buffer).second) { t->buffer = nullptr; } }
    };
    for (int i = 0; i < graph->n_nodes; i++) {
        hide(graph->nodes[i]);
        for (ggml_tensor * source : graph->nodes[i]->src) { hide(source); }
    }
    ggml_metal_fusion_add_alloc_deps(params->user_data, params->add_alloc_dep, graph);
    ggml_graph_optimize(graph);
    for (auto & [t, buffer] : held) { t->buffer = buffer; }
}
"""
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


def metal_of(tree: Path) -> str:
    source = tree / "ggml/src/ggml-metal"
    text = re.sub(r"//.*", "", (source / "ggml-metal-ops.cpp").read_text("utf-8"))  # comments open braces
    size = definition(
        (source / "ggml-metal.cpp").read_text("utf-8"), "static size_t ggml_backend_metal_buffer_type_get_alloc_size"
    )
    return "\n".join([METAL_START, *(definition(text, head) for head in METAL), size])


if __name__ == "__main__":
    print("#include <algorithm>\n#include <initializer_list>\n#include <map>\n#include <set>\n#include <vector>")
    print(cuda_of(Path(sys.argv[1])), vulkan_of(Path(sys.argv[1])), metal_of(Path(sys.argv[-1])), sep="\n")
