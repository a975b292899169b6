"""vLLM's own 4-bit kernels of routed experts: two buffers that stay, and scales whose room hangs on no batch."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.interop.launch import read_command
from vramwise.models import describe
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Node, Result
from vramwise.serving.common.forward.kernels import Pass, fp4_expert_bytes
from vramwise.sources import resolve
from vramwise.units import GIB, MIB

GEMMA, QWEN = "RedHatAI/gemma-4-26B-A4B-it-NVFP4", "RedHatAI/Qwen3.6-35B-A3B-NVFP4"
SMALL: dict[str, Any] = {"gpu_memory_utilization": 0.85, "max_num_seqs": 2, "kv_cache_dtype": "fp8_e4m3",
                         "language_model_only": True}  # fmt: skip


def serve(model: str, gpu: str = "rtx-5090", **settings: Any) -> Result:
    table = {"engine": "vllm", "moe_backend": "cutlass", "enable_prefix_caching": True, **SMALL, **settings}
    total = round(31.84 * GIB) if gpu == "rtx-5090" else None
    return estimate({"model": model, "task": "serve", "gpu": gpu, "gpu_total_bytes": total, "serve": table})


def buffers(found: Result) -> int:
    def within(node: Node) -> int:
        return node.bytes if node.name == "experts' work space" else max(map(within, node.children), default=0)

    return within(found.phases[1].components)


def test_the_buffers_are_those_of_workspace_shapes() -> None:
    """CutlassExpertsFp4.workspace_shapes: (M·topk, max(2N, K)) and (M·topk, N), where N is gate and up."""
    tokens, chosen, gate_and_up, hidden = 8192, 8, 2 * 512, 2048
    found = serve(QWEN, engine_version="0.20.0", max_num_batched_tokens=tokens, max_model_len=8192)
    assert buffers(found) == tokens * chosen * (max(2 * gate_and_up, hidden) + gate_and_up) * 2
    triton = serve(QWEN, engine_version="0.20.0", max_num_batched_tokens=tokens, max_model_len=8192, moe_backend="auto")
    assert buffers(triton) == tokens * chosen * (hidden + hidden) * 2


def test_one_token_has_scales_for_163840() -> None:
    op = next(
        op for block in describe(resolve(GEMMA).config).layers() for op in block.ops if isinstance(op, ExpertMlps)
    )
    one, all_of = (fp4_expert_bytes(op, Pass(tokens, 2)) for tokens in (1, 8192))
    assert one / MIB == pytest.approx(163_840 * 8 * 2816 / 16 / MIB, rel=0.001) == pytest.approx(220, abs=0.1)
    rows, hidden = 8192 * 8, 2816  # the rows given, those made and their products, and the sum
    assert all_of == rows * hidden * 2 * 3 + 8192 * hidden * 2


# model, version, settings, GiB of graphs as estimated and as taken
LOGS = [
    (GEMMA, "0.19.2rc1.dev8", {"max_num_batched_tokens": 8192}, 0.26, 0.25),
    (QWEN, "0.20.0", {"max_num_batched_tokens": 4096, "max_num_seqs": 4}, 0.45, 0.67),
]  # fmt: skip


@pytest.mark.parametrize(("model", "version", "settings", "estimated", "taken"), LOGS)
def test_graphs_hold_the_scales(
    model: str, version: str, settings: dict[str, Any], estimated: float, taken: float
) -> None:
    """0.07 and 0.54 GiB were said of what the first start estimated and the second took."""
    found = serve(model, engine_version=version, max_model_len=8192, **settings)
    assert found.quantities["cuda_graph_estimate"].expected / GIB == pytest.approx(estimated, abs=0.05)
    assert found.quantities["cuda_graph"].expected / GIB == pytest.approx(taken, abs=0.06)


@pytest.mark.parametrize(
    ("gpu", "settings"),
    [("h100", {}), ("rtx-5090", {"moe_backend": "marlin"}), ("rtx-5090", {"expert_parallel": True})],
)
def test_other_cards_kernels_and_whole_experts_have_none(gpu: str, settings: dict[str, Any]) -> None:
    plain = serve(QWEN, gpu, **{**settings, "moe_backend": "auto"})
    asked = serve(QWEN, gpu, **{"moe_backend": "cutlass", **settings})
    assert buffers(asked) == buffers(plain) > 0


def test_a_command_says_which_kernels_and_which_runner() -> None:
    words = ["VLLM_USE_V2_MODEL_RUNNER=0", "vllm", "serve", QWEN, "--moe-backend", "cutlass"]
    serve = read_command(words).scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["moe_backend"], serve["use_v2_runner"]) == ("cutlass", False)


def test_the_first_runner_can_be_kept() -> None:
    def answer(version: str, **settings: Any) -> dict[str, Any]:
        return dict(serve("Qwen/Qwen3-8B", "h100", engine_version=version, **settings).quantities)

    assert answer("0.31.0", use_v2_runner=False) != answer("0.31.0") == answer("0.31.0", use_v2_runner=True)
    assert answer("0.20.0", use_v2_runner=True) == answer("0.20.0")
