"""What TensorRT-LLM holds while max_num_tokens pass.

The PyTorch backend (1.0 on) runs them and takes torch's peak of what is allocated (_torch/pyexecutor/_util.py
KvCacheCreator.configure_kv_cache_capacity). Read: modules/rms_norm.py flashinfer_fused_add_rmsnorm (in place),
modules/gated_mlp.py swiglu, forward_context_default of latent attention (keys of every head), and of routed experts
getWorkspaceDeviceBufferSizes (cpp/tensorrt_llm/kernels/cutlass_kernels/moe_gemm: inputs and outputs of both products,
overlapped). Taken to be as in vLLM, not read: names of a layer, one product of queries, keys and values, an all-reduce
that makes one tensor (fused with the norm it makes two). No log or run holds this, so that the high end is of kernels
that keep all of it. Before 1.0 an engine's context holds the activations.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.result import Node
from vramwise.serving.common.constants import constant
from vramwise.serving.common.forward.kernels import Kernels, Pass
from vramwise.serving.common.forward.libraries import cublas_work_space
from vramwise.serving.common.forward.walk import eager_layer, experts_workspace
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.resolved import ResolvedServe

KERNELS = Kernels(latent_keys=True)
AT_MOST = Kernels(latent_keys=True, norms_apart=True, product_apart=True, keeps_names=True)
PYTORCH_VERSION = (1,)
EXPERTS = "experts' work space"


def activations(model: Model, r: ResolvedServe, capability: float | None) -> Node:
    """The layer that holds most with its experts' work space; of an engine the same times what logs print over it."""
    own, ranks, tokens = r.storage.bytes_per_element, r.settings.tensor_parallel_size, r.batched_tokens
    spread = engine_layout(r.settings).cut.expert_parallel_size
    run = Pass(tokens, own, ranks, spread, kernels=KERNELS)
    source = "TensorRT-LLM tensorrt_llm/_torch/modules, models: their kernels and names"
    layer = eager_layer(model, run, source, AT_MOST)
    size = experts_workspace(model, tokens, ranks, spread) * own
    experts = (
        Node(EXPERTS, size, "derived", 
             formula="tokens × chosen × (max(inner, hidden) + max(gate and up, hidden)) × dtype",
             inputs={"tokens": tokens}, source="TensorRT-LLM cpp/tensorrt_llm/kernels/cutlass_kernels/moe_gemm"),
    ) if size else ()  # fmt: skip
    if r.version >= PYTORCH_VERSION:
        return Node.group("activations", (layer, *experts, cublas_work_space(capability)))
    kept = constant("tensorrt-llm", "activation_factor", r.version)
    whole = layer.bytes + size
    return Node(
        "activations", round(kept.expected * whole), "assumed", round(kept.low * whole), round(kept.high * whole),
        formula="(layer + experts' work space) × factor", inputs={"tokens": tokens, "factor": kept.expected},
        source=kept.source,
    )  # fmt: skip
