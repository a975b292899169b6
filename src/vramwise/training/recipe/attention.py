"""Which attention runs: the framework's own rule, in its record, and what a reader should know of it."""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact, types_with
from vramwise.scenario import TrainSettings
from vramwise.training.resolved import ResolvedTrain

KEEPS_NO_SCORES = frozenset({"flash", "flex"})


def attention_of(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """The attention that runs; raises `ScenarioError` where the class refuses what was asked for.

    `given`: the settings as stated; `train`: with what the framework decides.
    """
    return framework_of(train).attention(given, train, model)


def attention_note(asked: TrainSettings, train: ResolvedTrain, model: Model) -> str:
    """What runs in the place of the attention that was asked for, or grows with the square; empty where neither is."""
    kind = str(model.config.model_type)
    own = framework_of(train).attention_note(asked, train, kind)
    if own:
        return own
    if "attention" in asked.explicit and asked.attention != train.attention:
        return f"attention {asked.attention} changed nothing: {train.framework} runs {train.attention} for {kind}"
    inner = model.config.values.get("text_config")
    text = str(inner.get("model_type")) if isinstance(inner, dict) else kind
    runs_eager = train.attention == "eager" or (train.attention == "sdpa" and text != kind)
    scores = has_fact("transformers", "without_sdpa", text) and not has_fact("transformers", "without_attention", text)
    if runs_eager and scores and framework_of(train).classes == "as they are":
        kernel = "" if {text, kind} & types_with("transformers", "without_flash") else "; --attention flash keeps none"
        return f"eager attention, as {text} has no SDPA: scores grow with the square of the sequence{kernel}"
    return ""
