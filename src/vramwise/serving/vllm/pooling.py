"""Models that answer with embeddings, scores or classes (`--runner pooling`): nothing of them makes logits."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.versions import version_of
from vramwise.serving.vllm.towers import has_encoder

# 0.22.1 and 0.33.0 config/model.py _SUFFIX_TO_DEFAULTS, in its order; 0.9.2 config.py has most of them
_POOLS: tuple[tuple[str, bool], ...] = (
    ("ForCausalLM", False), ("ForConditionalGeneration", False), ("ChatModel", False), ("LMHeadModel", False),
    ("ForTextEncoding", True), ("Classification", True), ("ForRewardModeling", True), ("Model", True),
)  # fmt: skip
# 0.22.1 and 0.33.0 models/adapters.py make no ParallelLMHead anywhere in the model; 0.9.2 deletes the outermost class's
# alone
INNER_HEADS_VERSION = (0, 22)


def pools(model: Model, settings: ServeSettings) -> bool:
    """As it is told to (`--runner`, `--convert`, `--task`), else as a checkpoint of sentence-transformers does, or as
    the class in the config ends."""
    if settings.pooling is not None:
        return settings.pooling
    if model.config.get("sentence_transformers_pooling") is True:
        return True
    if has_fact("vllm", "generates_as_a_model", model.config.model_type):
        return False
    for name in map(str, model.config.items("architectures") or []):
        for ending, found in _POOLS:
            if name.endswith(ending):
                return found
    return False


def heads_left_out(model: Model, settings: ServeSettings) -> frozenset[str]:
    """The output head, where no logits are made (models/adapters.py _create_pooling_model_cls)."""
    inner = has_encoder(model) and version_of(settings.engine_version) < INNER_HEADS_VERSION
    return frozenset({"head"}) if pools(model, settings) and not inner else frozenset()
