"""The KV cache pool against vLLM logs."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.models import LayerCache
from vramwise.serving.common.kv_cache import CacheDtypes, LayerSpec, layer_specs, plan_pool
from vramwise.units import GIB, KIB

# Gemma-4-31B: 10 full layers of 4 heads x 512, 50 sliding ones of 16 x 256
GEMMA_4_31B = [LayerCache("full", 4, 512, 512)] * 10 + [LayerCache("sliding", 16, 256, 256, window=1024)] * 50


@pytest.mark.parametrize(
    ("cache_bytes", "length", "page", "blocks", "pages", "tokens", "requests"),
    [
        (2, 163_840, 512 * KIB, 2072, 2005, 169_314, 1.0334),
        (1, 262_144, 256 * KIB, 4145, 2773, 391_845, 1.4948),
    ],
)
def test_gemma_4_31b_is_reproduced_to_the_token(
    cache_bytes: int, length: int, page: int, blocks: int, pages: int, tokens: int, requests: float
) -> None:
    """vLLM log on two cards: 10.12 GiB of cache, blocks of 64 tokens, 8,192 tokens a step."""
    pool = plan_pool(layer_specs(GEMMA_4_31B, 2, CacheDtypes(cache_bytes)), 64)
    assert (pool.page_bytes, pool.group_size) == (page, 10)
    assert [group.block_size for group in pool.groups] == [128, 64]
    count = pool.num_blocks(round(10.12 * GIB))
    assert count == blocks
    assert pool.blocks_per_request(length, 8192) == pages
    assert round(pool.max_concurrency(count, length, 8192), 4) == requests
    assert int(pool.max_concurrency(count, length, 8192) * length) == tokens


def test_llama_3_8b_takes_131072_bytes_a_token() -> None:
    """vLLM 0.6 log: 4 GiB of swap are 2,048 blocks of 16 tokens."""
    pool = plan_pool(layer_specs([LayerCache("full", 8, 128, 128)] * 32, 1, CacheDtypes(2)), 16)
    assert pool.block_bytes == 2 * 1024 * KIB
    assert pool.num_blocks(4 * GIB) == 2048


def test_heads_are_copied_where_there_are_fewer_than_ranks() -> None:
    caches = [LayerCache("full", 4, 128, 128)]
    assert layer_specs(caches, 4, CacheDtypes(2)) == layer_specs(caches, 8, CacheDtypes(2))


def test_latent_cache_is_whole_on_every_rank() -> None:
    """vLLM log: DeepSeek-R1 takes 70,272 bytes a token for any number of ranks; V0 pads rows to 256 bytes."""
    caches = [LayerCache("latent", latent_dim=512, rope_dim=64)] * 61
    for ranks in (1, 8):
        assert sum(spec.token_bytes for spec in layer_specs(caches, ranks, CacheDtypes(2))) == 70_272
    padded = layer_specs(caches[:27], 1, CacheDtypes(2, latent_row_alignment=256))
    assert sum(spec.token_bytes for spec in padded) == 34_560


def test_attention_blocks_grow_until_a_page_covers_the_recurrent_state() -> None:
    """vLLM log: Qwen3-Next-80B on two ranks raises the attention block to 544 tokens."""
    state = LayerCache("recurrent", conv_state_elements=3 * 8192, state_elements=32 * 128 * 128)
    caches = [state, state, state, LayerCache("full", 2, 256, 256)] * 12
    pool = plan_pool(layer_specs(caches, 2, CacheDtypes(2)), 16)
    assert pool.smallest_block == 544
    assert pool.group_size == 12
    assert pool.num_groups == 4


def test_layers_are_padded_to_groups_of_the_rarest_kind() -> None:
    """Gemma-3-27B: 10 full and 52 sliding layers make groups of 10, the last one padded by 8."""
    caches = [LayerCache("full", 16, 128, 128)] * 10 + [LayerCache("sliding", 16, 128, 128, window=1024)] * 52
    pool = plan_pool(layer_specs(caches, 1, CacheDtypes(2)), 16)
    assert (pool.group_size, pool.num_groups) == (10, 7)
    whole = plan_pool(layer_specs(caches, 1, CacheDtypes(2), windows=False), 16)
    assert (whole.group_size, whole.num_groups) == (62, 1)


def test_nearly_equal_kinds_take_the_larger_count() -> None:
    specs = [LayerSpec("full", 1024)] * 4 + [LayerSpec("sliding", 1024, 128)] * 5
    assert plan_pool(specs, 16, largest_group_ratio=1.5).group_size == 5
    assert plan_pool(specs, 16, largest_group_ratio=1.25).group_size == 4


def test_decode_context_parallelism_splits_tokens() -> None:
    pool = plan_pool([LayerSpec("latent", 1152)] * 61, 64, decode_context_parallel=8)
    assert pool.blocks_per_request(64 * 800, 8192) == 100


def test_longest_request_is_the_last_that_fits() -> None:
    pool = plan_pool([LayerSpec("full", 1024)] * 4 + [LayerSpec("sliding", 1024, 512)] * 8, 16)
    longest = pool.longest_request(500, 256, 1 << 20)
    assert pool.blocks_per_request(longest, 256) <= 500 < pool.blocks_per_request(longest + 1, 256)


def test_qwen36_35b_with_cached_prefixes_is_reproduced_to_the_token() -> None:
    """vLLM 0.24.0 log: 6.01 GiB of fp8 cache hold 4.35 requests of 131,072 tokens, printed as 569,878 tokens."""
    full = LayerSpec("full", 2 * (256 + 256))
    state = LayerSpec("recurrent", 0, state_bytes=2_132_992)
    pool = plan_pool([full] * 10 + [state] * 30, 16, state_pages=2)
    assert [group.block_size for group in pool.groups] == [2096, 2096]
    assert pool.blocks_per_request(131_072, 8192) == 63 + 3 * 2
    count = pool.num_blocks(round(6.01 * GIB))
    assert int(pool.max_concurrency(count, 131_072, 8192) * 131_072) == 569_878


def test_drafted_tokens_lengthen_states_and_hold_pages_of_their_own() -> None:
    """vLLM log of Qwen3.6-27B on two cards with 3 drafted tokens: 424 blocks of 164 + 3 · (2 + 3) pages a request are
    the printed 620,944 tokens of 262,144 each."""
    scenario = {
        "model": "Qwen/Qwen3.5-27B", "task": "serve", "gpu": "rtx-3090", "num_gpus": 2,
        "serve": {"engine": "vllm", "engine_version": "0.26.0", "kv_cache_dtype": "fp8_e5m2",
                  "max_model_len": 262144, "quantization": "w4a16", "tensor_parallel_size": 2,
                  "speculative": {"method": "mtp", "num_tokens": 3}},
    }  # fmt: skip
    result = estimate(scenario)
    node = result.phases[-1].components.find("KV cache")
    assert node is not None
    assert node.inputs["page_bytes"] == 1600 * 2 * (256 + 256)
    blocks, requests = (result.quantities[name].expected for name in ("kv_cache_blocks", "max_concurrency"))
    assert blocks / requests == pytest.approx(179)
    assert int(424 / 179 * 262_144) == 620_944


def test_an_indexer_that_picks_groups_has_one_key_for_each() -> None:
    """SGLang 0.5.23 model_executor/pool_configurator.py: ceil((128 + 4) / index_kpool) bytes a token; transformers'
    class keeps each token's key, what weighs it and a flag."""
    (row,) = layer_specs([LayerCache("latent", latent_dim=512, index_dim=128, index_pool=4)], 8, CacheDtypes(2))
    assert row.token_bytes == 512 * 2 + 33
    assert LayerCache("latent", latent_dim=512, index_dim=128, index_pool=4).elements_per_token == 512 + 257
