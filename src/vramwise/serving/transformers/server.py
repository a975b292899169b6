"""`serve` with plain transformers: `generate` on one batch of requests of max_model_len tokens."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import GenerateSettings
from vramwise.serving.common.answer import resolved
from vramwise.serving.transformers.generate import Sizes, generation, resolve

DEFAULT_LENGTH = 4096
DEFAULT_NEW_TOKENS = 256


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """max_num_seqs prompts at once, each filled up to max_model_len by the last new token."""
    given = scenario.serve
    longest = model_length(model)
    length, batch = given.max_model_len or min(DEFAULT_LENGTH, longest), given.max_num_seqs or 1
    prompt, new = _prompt_and_new(length)
    generate = GenerateSettings(
        engine_version=given.engine_version,
        dtype=given.dtype,
        quantization=given.quantization,
        quantization_group_size=given.quantization_group_size,
        batch_size=batch,
        prompt_tokens=prompt,
        new_tokens=new,
        kv_cache_dtype=given.kv_cache_dtype,
    )
    settings = given.replace(max_model_len=length, max_num_seqs=batch)
    sizes = Sizes("max_num_seqs", "max_model_len", length, longest, _prompt_and_new)
    table = resolved(scenario, "serve", settings)
    _, plan = resolve(generate, model)
    return generation(scenario.replace(generate=generate), plan, sizes, model, source, gpu, table)


def _prompt_and_new(length: int) -> tuple[int, int]:
    new = max(1, min(DEFAULT_NEW_TOKENS, length // 2))
    return max(1, length - new), new
