"""What MLX's kernels hold until their command buffers have ended, against the rules of mlx's own source."""

from __future__ import annotations

import pytest

import vramwise
from vramwise.hardware import find_gpu
from vramwise.models import describe
from vramwise.serving.common.storage import storage_of
from vramwise.serving.mlx.cache import CacheSettings
from vramwise.serving.mlx.in_flight import OF_LARGE, Limits, limits_of, most_held
from vramwise.serving.mlx.kernels import Array, Chunk, Kernel, Lowered
from vramwise.serving.mlx.prompt import Prompts, chunk_kernels
from vramwise.sources import resolve
from vramwise.units import MIB

SMALL = Limits(40, 40)


def chain(count, elements, size):
    """Kernels of which each reads what the one before made."""
    arrays = [Array(("chain", i), elements, size) for i in range(count)]
    return [Kernel(tuple(arrays[i - 1 : i]), (array,)) for i, array in enumerate(arrays)]


def test_a_command_buffer_ends_with_its_kernels_and_eleven_are_held():
    held, more = most_held(chain(2000, 1, 1), SMALL, (10, 14))
    assert held == 11 * 41 + 1  # more than 40 kernels end one; what the eldest reads of the one before is still there
    assert more == 15 * 41 + 1


def test_a_command_buffer_ends_with_its_elements_whatever_their_bytes():
    """Two arrays a kernel, each counted once: 41 · 2^20 elements need 42 arrays of 2^20, which 41 kernels touch."""
    for size in (1, 4):
        (held,) = most_held(chain(2000, MIB, size), Limits(1000, 40))
        assert held == (11 * 40 + 1) * size


def test_what_is_shorter_than_eleven_buffers_is_held_whole():
    assert most_held(chain(30, 1, 8), SMALL) == (240,)
    assert most_held([], SMALL) == (0,)


@pytest.mark.parametrize(
    ("gpu", "limits"),
    [("m4-max-64gb", OF_LARGE), ("m2-ultra", OF_LARGE), ("m3-pro", SMALL), ("apple-m4", SMALL), (None, SMALL)],
)
def test_limits_go_by_the_size_of_the_chip(gpu, limits):
    assert limits_of(None if gpu is None else find_gpu(gpu).gpu) == limits


def lowered(name, keys=1024, **config):
    model = describe({**resolve(name).config, **config})
    layer = next(block for block in reversed(list(model.layers())) if block.caches)
    return model, Lowered(layer, Chunk(1024, 1, storage_of(model, "auto", None, None)), keys, keys, 0)


def test_a_dense_layer_makes_what_mlx_lm_makes():
    """mlx-lm models/qwen3.py: two norms, two results of attention and MLP, queries, keys and values, turned queries and
    keys, mixed values, gate and up. Norms of heads, sums and SwiGLU take the place of what they read."""
    model, layer = lowered("Qwen/Qwen3-4B")
    values = sum(array.elements for kernel in layer.kernels for array in kernel.makes) // 1024
    hidden, queries, keys, inner = 2560, 4096, 1024, 9728
    assert values == 4 * hidden + 3 * queries + 3 * keys + 2 * inner
    assert model.num_parameters == 4_022_468_096


def test_heads_without_a_kernel_of_their_own_make_scores():
    """mlx 0.26.0 to 0.32.4: 64, 80 or 128 values a head."""

    def scores(name, **config):
        _, layer = lowered(name, keys=4096, **config)
        return [array for kernel in layer.kernels for array in kernel.makes if "scores" in str(array.id[1])]

    assert not scores("Qwen/Qwen3-4B")
    (wide,) = scores("Qwen/Qwen3-4B", head_dim=256)
    assert wide.elements == 32 * 1024 * 4096
    (latent,) = scores("zai-org/GLM-4.7-Flash")
    assert latent.elements == 20 * 1024 * 4096


def test_routed_experts_bring_their_rows_into_order():
    """mlx-lm models/switch_layers.py SwitchGLU: sorted rows, up, gate, down, and back in the order of tokens."""
    _, layer = lowered("Qwen/Qwen3-30B-A3B-Instruct-2507")
    rows = {str(a.id[1]).split(" of ")[0]: a.elements for kernel in layer.kernels for a in kernel.makes}
    chosen, hidden, inner = 8, 2048, 768
    assert [rows[name] for name in ("rows", "down", "back")] == [1024 * chosen * hidden] * 3
    assert [rows[name] for name in ("up", "gate")] == [1024 * chosen * inner] * 2


def test_a_layer_reads_what_the_one_before_made():
    model, _ = lowered("llama-3.2-1b")
    cache = CacheSettings(None, 64, 5000, None, 2048, 2)
    prompts = Prompts(1, storage_of(model, "auto", None, None), cache)
    kernels = list(chunk_kernels(model, prompts, 0, 512))
    made = {array.id for kernel in kernels for array in kernel.makes}
    stream = [a.id for k in kernels for a in k.reads if a.id[0].endswith("layers.0") and a.id in made]
    assert stream


def test_logits_of_the_last_piece_until_027():
    asked = {"model": "llama-3.2-1b", "task": "serve", "gpu": "m4-max-64gb"}
    old, new = (
        vramwise.estimate({**asked, "serve": {"engine": "mlx", "engine_version": version, "max_model_len": 2048}})
        for version in ("0.26.4", "0.27.1")
    )
    more = old.quantities["peak_allocated"].expected - new.quantities["peak_allocated"].expected
    assert 0.8 * 2 * 2048 * 128256 < more < 1.1 * 2 * 2048 * 128256


def test_printed_peaks():
    """ml-explore/mlx-lm BENCHMARKS.md: 2,048 tokens and 128 more, on an M4 Max."""
    for quantization, printed in (("mlx-8bit", 5.254), ("mlx-6bit", 4.25), ("mlx-4bit", 3.35)):
        result = vramwise.estimate(
            "Qwen/Qwen3-4B-Instruct-2507", task="serve", engine="mlx", engine_version="0.28.2", gpu="m4-max-64gb",
            quantization=quantization, max_model_len=2176,
        )  # fmt: skip
        peak = result.quantities["peak_allocated"]
        assert abs(peak.expected / (printed * 1e9) - 1) < 0.02
        assert peak.low < printed * 1e9 < peak.high


def test_no_cuda_context_where_no_gpu_is_named():
    result = vramwise.estimate("llama-3.2-1b", task="serve", engine="mlx", max_model_len=2048)
    assert not any(part.name == "CUDA context" for phase in result.phases for part in phase.components.children)
