"""The fullest moment of a layer as engines run it, worked out by hand: H hidden, I intermediate, t tokens."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.models import describe
from vramwise.models.allocator import block_bytes
from vramwise.result import Node
from vramwise.serving.common.forward.kernels import Kernels, Pass
from vramwise.serving.common.forward.libraries import CUBLAS
from vramwise.serving.common.forward.walk import largest_live_set
from vramwise.sources import resolve

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
HIDDEN, INNER, VOCABULARY, TOKENS = 4096, 14336, 128256, 8192


def term(engine: str, name: str, model: Any = LLAMA, ranks: int = 1, gpu: str = "h100-sxm-80gb", **serve: Any) -> Node:
    result = estimate({
        "model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks,
        "serve": {"engine": engine, "tensor_parallel_size": ranks, "max_model_len": 4096, **serve},
    })  # fmt: skip
    found = result.phases[-1].components.find(name)
    assert found is not None
    return found


def llama(**kernels: bool) -> int:
    """Elements a token."""
    run = Pass(TOKENS, 2, kernels=Kernels(**kernels))
    return largest_live_set(describe(resolve(LLAMA).config), run, named=True).bytes // (2 * TOKENS)


def test_most_engines_hold_three_of_the_mlp_and_four_hidden_states() -> None:
    """Given, residual, attention's output, down's output; gate and up, their product."""
    assert llama() == llama(sums_in_place=True) == 4 * HIDDEN + 3 * INNER


def test_a_function_of_its_own_is_beside_gate_and_up_and_the_product() -> None:
    assert llama(product_apart=True) == 3 * HIDDEN + 4 * INNER


def test_names_of_a_layer_keep_norms_sums_and_outputs() -> None:
    """Given, residual and embeddings; both norms and both sums; attention's output."""
    assert llama(norms_apart=True, product_apart=True, keeps_names=True) == 8 * HIDDEN + 4 * INNER


@pytest.mark.parametrize(("in_place", "copies"), [(False, 2), (True, 1)])
def test_ranks_add_up_in_a_tensor_of_its_own_or_in_place(in_place: bool, copies: int) -> None:
    run = Pass(TOKENS, 2, ranks=8, kernels=Kernels(sums_in_place=in_place))
    live = largest_live_set(describe(resolve(LLAMA).config), run, named=True)
    assert live.bytes == 2 * TOKENS * ((3 + copies) * HIDDEN + 3 * INNER // 8)


@pytest.mark.parametrize(("version", "copies"), [("2.3.1", 2), ("2.4.1", 1), ("3.3.7", 0)])
def test_tgis_warm_up_makes_logits_of_all_tokens_before_3(version: str, copies: int) -> None:
    """router/client warmup asks for prefill_logprobs; log_softmax in place from 2.4; REQUEST_LOGPROBS off from 3.0."""
    found = term("tgi", "warm-up prefill", engine_version=version, max_num_batched_tokens=TOKENS)
    layer = 2 * TOKENS * (8 * HIDDEN + 4 * INNER)
    assert found.bytes == layer + copies * 2 * TOKENS * VOCABULARY + 32 * 2**20


def test_tensorrt_llms_pytorch_backend_holds_a_layer_and_its_experts_work_space() -> None:
    dense = term("tensorrt-llm", "activations", engine_version="1.0", max_num_batched_tokens=TOKENS)
    assert dense.bytes == 2 * TOKENS * (4 * HIDDEN + 3 * INNER) + 32 * 2**20
    mixture = term(
        "tensorrt-llm", "activations", "mistralai/Mixtral-8x7B-Instruct-v0.1", 2, engine_version="1.0",
        max_num_batched_tokens=TOKENS,
    )  # fmt: skip
    space = next(child for child in mixture.children if child.name == "experts' work space")
    inner = INNER // 2
    assert space.bytes == 2 * TOKENS * 2 * (max(inner, HIDDEN) + max(2 * inner, HIDDEN))


def test_sampling_of_the_captured_batch_counts_where_it_is_more_than_a_chunk() -> None:
    found = term("sglang", "activations", engine_version="0.5.4", chunked_prefill_size=512)
    assert found.children[0].name == "sampling"
    assert found.children[0].bytes == 2 * block_bytes(256 * VOCABULARY * 4)
    few = term("sglang", "activations", engine_version="0.5.4", chunked_prefill_size=512, max_num_seqs=1)
    assert few.children[0].name == "prefill chunk"


def test_cublas_takes_less_before_hopper() -> None:
    held = [term("sglang", "activations", gpu=gpu).children[-1] for gpu in ("a100-sxm-80gb", "h100-sxm-80gb")]
    assert [(node.name, node.bytes) for node in held] == [(CUBLAS, 8_519_680), (CUBLAS, 33_554_432)]
    assert [node.low for node in held] == [8_519_680, 33_554_432]


def test_cublas_may_take_less_on_consumer_blackwell() -> None:
    held = term("sglang", "activations", gpu="rtx-5090").children[-1]
    assert (held.name, held.low, held.bytes) == (CUBLAS, 8_519_680, 33_554_432)
