"""KV caches whose heads are packed: bytes as vLLM 0.33.0 counts them."""

from __future__ import annotations

import pytest

import vramwise
from vramwise.interop.launch import read_command
from vramwise.serving.common.packed_heads import packed_head_bytes

# slot_size_aligned of turboquant/config.py, customize_spec of triton_attn.py and flashinfer.py, by hand
HEADS = [
    ("turboquant_k3v4_nc", 128, 50 + 68),
    ("turboquant_k3v4_nc", 256, 98 + 132),
    ("turboquant_k8v4", 128, 128 + 68),
    ("turboquant_4bit_nc", 128, 66 + 68),
    ("turboquant_3bit_nc", 128, 50 + 52),
    ("turboquant_3bit_nc", 80, 32 + 34),
    ("int8_per_token_head", 128, 2 * 128 + 8),
    ("fp8_per_token_head", 64, 2 * 64 + 8),
    ("int4_per_token_head", 128, 128 + 8),
    ("nvfp4", 128, 2 * (64 + 8)),
    ("nvfp4_4over6", 128, 2 * (64 + 8)),
]


@pytest.mark.parametrize(("dtype", "width", "size"), HEADS)
def test_bytes_of_a_head(dtype: str, width: int, size: int) -> None:
    assert packed_head_bytes(dtype, width, width) == size


def test_dtypes_of_plain_elements_are_not_packed() -> None:
    assert packed_head_bytes("fp8_e4m3", 128, 128) is None


def block_bytes(**settings: object) -> float:
    serve = {"max_model_len": 8192, **settings}
    found = vramwise.estimate("Qwen/Qwen3-8B", task="serve", gpu="h100", **serve).quantities
    return float(found["kv_cache_bytes"].expected / found["kv_cache_blocks"].expected)


def test_every_layer_of_a_cache_with_scales_by_head_is_packed() -> None:
    assert block_bytes(kv_cache_dtype="int8_per_token_head") == pytest.approx(16 * 36 * 8 * (2 * 128 + 8), rel=1e-4)


def test_turboquant_leaves_two_layers_at_each_end_as_they_are() -> None:
    """turboquant/config.py get_boundary_skip_layers; pages of their own size, one group (UniformTypeKVCacheSpecs)."""
    expected = 16 * 8 * (32 * (128 + 68) + 4 * 2 * 128 * 2)
    assert block_bytes(kv_cache_dtype="turboquant_k8v4") == pytest.approx(expected, rel=1e-4)


def test_stages_have_the_outer_layers_that_are_theirs() -> None:
    expected = 16 * 8 * (16 * (128 + 68) + 2 * 2 * 128 * 2)
    found = block_bytes(kv_cache_dtype="turboquant_k8v4", pipeline_parallel_size=2)
    assert found == pytest.approx(expected, rel=1e-4)


def test_hybrids_pack_all_their_full_layers() -> None:
    asked = {"task": "serve", "gpu": "h100", "max_model_len": 8192}
    plain = vramwise.estimate("Qwen/Qwen3.5-9B", **asked).quantities["kv_cache_tokens"].expected
    packed = vramwise.estimate("Qwen/Qwen3.5-9B", **asked, kv_cache_dtype="turboquant_k8v4")
    assert packed.quantities["kv_cache_tokens"].expected > 1.8 * plain


@pytest.mark.parametrize(
    ("written", "read"),
    [("turboquant_3bit_nc", "turboquant_3bit_nc"), ("int8_per_token_head", "int8_per_token_head"),
     ("fp8_ds_mla", "fp8_ds_mla")],
)  # fmt: skip
def test_a_command_line_says_them(written: str, read: str) -> None:
    launch = read_command(["vllm", "serve", "Qwen/Qwen3-8B", "--kv-cache-dtype", written])
    assert launch.scenario["serve"]["kv_cache_dtype"] == read
    assert vramwise.estimate({**launch.scenario, "gpu": "h100"}).quantities["kv_cache_tokens"].expected > 0
