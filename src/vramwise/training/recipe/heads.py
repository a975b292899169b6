"""A model under another head than its own: a classifier over sequences, or none."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from vramwise.errors import ScenarioError, UnsupportedModelError
from vramwise.models import describe
from vramwise.models.blocks import Block, Operation, Parameter, Value
from vramwise.models.model import Model
from vramwise.models.operations.simple import Linear
from vramwise.models.type_facts import Version, fact_value, has_fact

NUM_LABELS = 2  # transformers 5.23 configuration_utils.py: num_labels when a config names none


@lru_cache(maxsize=128)
def with_head(model: Model, head: str) -> Model:
    """The model with `sequence-classification` or `none` instead of its output layer.

    A decoder's score layer has no bias and reads every position (transformers modeling_layers.py,
    GenericForSequenceClassification); an encoder's classifier reads its pooler. Raises `ScenarioError` when the
    model has no such form.
    """
    if head == "none" and model.head == "none":
        return model
    labels = model.config.size("num_labels", default=NUM_LABELS)
    is_decoder = model.head in ("none", "causal-lm") and "pooled" not in model.blocks[-1].outputs
    if is_decoder and model.blocks[-1].outputs:
        return _decoder(model, labels if head == "sequence-classification" else 0)
    bare = _bare(model)
    return _classifier(bare, labels) if head == "sequence-classification" else bare


def _decoder(model: Model, labels: int) -> Model:
    *layers, last = model.blocks
    before = _before_output(last)  # what caps or scales logits belongs to the causal class alone
    score = last.ops[len(before)] if "logits" in last.outputs and len(before) < len(last.ops) else None
    if not isinstance(score, Linear):
        raise ScenarioError("train.head", f"the output layer of {model.id or model.family} cannot be exchanged")
    if not labels:
        block = replace(last, ops=before, outputs={"hidden": score.inputs[0]})
        return replace(model, blocks=(*layers, block), head="none", loss="")
    weight = Parameter("score.weight", (labels, score.inputs[0].width), "head", is_linear=True)
    logits = Value(score.outputs[0].id, labels)
    op = replace(score, module="score", outputs=(logits,), parameters=(weight,))
    return replace(model, blocks=(*layers, replace(last, ops=(*before, op), outputs={"logits": logits})))


def _before_output(last: Block) -> tuple[Operation, ...]:
    """The operations before the last linear layer, which gives the logits."""
    at = max((place for place, op in enumerate(last.ops) if isinstance(op, Linear)), default=len(last.ops))
    return last.ops[:at]


def untied(model: Model) -> Model:
    """The model with an output layer of its own: litgpt's GPT shares no weights between embedding and output."""
    if not any(parameter.tied_to for parameter in model.blocks[-1].parameters):
        return model
    return describe({**model.config.values, "tie_word_embeddings": False}, model.id)


def with_own_output(model: Model, version: Version) -> Model:
    """The model with the output layer that its files hold, where transformers of that version follows the config.

    transformers 5.0 models/t5/configuration_t5.py and its like tie it "for T5 family", whatever the config says; 4.57
    has `tie_word_embeddings` decide.
    """
    kind, fact = model.config.model_type, "tied_against_the_config"
    if has_fact("transformers", fact, kind, version) or not has_fact("transformers", fact, kind):
        return model
    return model if model.config.flag("tie_word_embeddings", True) else _with_own_output(model)


@lru_cache(maxsize=16)
def _with_own_output(model: Model) -> Model:
    def own(p: Parameter) -> Parameter:
        return replace(p, tied_to=None) if p.part == "head" else p

    *layers, last = model.blocks
    ops = tuple(replace(op, parameters=tuple(map(own, op.parameters))) for op in last.ops)
    return replace(model, blocks=(*layers, replace(last, ops=ops)))


def _bare(model: Model) -> Model:
    """The encoder with its pooler, where it has one, and no head, as `AutoModel` builds it."""
    kind = model.config.model_type
    name = fact_value("transformers", "bare_class", kind) or fact_value("transformers", "headless_class", kind)
    if name is None:
        raise UnsupportedModelError(f"a {kind} model without its own head is not described; bert and roberta are")
    return describe({**model.config.values, "architectures": [name]}, model.id)


def _classifier(bare: Model, labels: int) -> Model:
    *layers, last = bare.blocks
    pooled = last.outputs.get("pooled")
    if pooled is None:
        raise UnsupportedModelError(
            f"a classifier on {bare.config.model_type} is not described; one on bert or roberta is"
        )
    logits = Value(max(value.id for op in last.ops for value in op.outputs) + 1, labels)
    weight = Parameter("classifier.weight", (labels, pooled.width), "head", is_linear=True)
    bias = Parameter("classifier.bias", (labels,), "head")
    op = Linear(module="classifier", inputs=(pooled,), outputs=(logits,), parameters=(weight, bias))
    block: Block = replace(last, ops=(*last.ops, op), outputs={"logits": logits})
    return replace(bare, blocks=(*layers, block), head="masked-lm")
