"""LongCat Flash: transformers' class has weights for experts that do nothing, checkpoints and engines have none."""

from __future__ import annotations

from vramwise import estimate

LONGCAT = {
    "model_type": "longcat_flash", "num_layers": 28, "max_position_embeddings": 131_072, "torch_dtype": "bfloat16",
}  # fmt: skip
"""Sizes are those of the configuration class, whose defaults are LongCat Flash's."""
PUBLISHED = 561_862_880_256
"""meituan-longcat/LongCat-Flash-Chat in tetrabit/llmfit@82b3e1c411a6:data/hf_models.json, with a layer that predicts
further tokens and a copy of the embedding for it."""


def test_engines_hold_what_the_files_hold() -> None:
    for engine in ("vllm", "sglang"):
        serve = {"engine": engine, "tensor_parallel_size": 16}
        found = estimate({"model": LONGCAT, "task": "serve", "gpu": "b200", "num_gpus": 16, "serve": serve})
        assert found.model is not None
        assert 0 <= PUBLISHED - found.model.num_parameters < 0.003 * PUBLISHED
        assert found.model.num_active_parameters < 0.06 * PUBLISHED


def test_transformers_makes_a_product_for_every_expert() -> None:
    served = estimate({"model": LONGCAT, "task": "load", "serve": {"engine": "vllm"}}).quantities["params"]
    made = estimate({"model": LONGCAT, "task": "load"}).quantities["params"]
    assert made.expected - served.expected == 28 * 256 * 2 * 2048 * 6144
