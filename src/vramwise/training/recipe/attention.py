"""Which attention runs: the framework's own rule, in its record, and what a reader should know of it.

Which masks attention is handed in training, by what a batch holds, and how flash attention sees heads.

A mask of (batch, 1, sequence, sequence) is made where samples are padded or packed ones kept apart: since transformers
4.53 (masking_utils.py) of booleans, which SDPA turns into floats anew in every layer, before of floats, once for all
(`_update_causal_mask` of each class; some make it for any batch). With it SDPA takes the memory-efficient kernel, and
heads are copied. Flash attention takes none: it leaves padding out, and its kernel for rows of several samples knows
where each begins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from vramwise.errors import ScenarioError
from vramwise.frameworks import framework_of
from vramwise.frameworks.attention import kinds_within, types_without, version_of_classes
from vramwise.frameworks.versions import library_version, stated, torch_version
from vramwise.models.execution import Execution
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact, types_with
from vramwise.scenario import TrainSettings
from vramwise.training.resolved import ResolvedTrain

BOOLEAN_SINCE = (4, 53)  # transformers masking_utils.py sdpa_mask
_TAKES_GROUPS = (2, 5)  # torch, whose SDPA has `enable_gqa` since
# trl trainer/sft_trainer.py: packing flattens a batch into one row, in 0.19 and later; its positions tell samples
# apart, without flash attention only since 0.23 (before, `return_position_ids` was for flash attention alone).
_TRL_FLATTENS_SINCE, _TRL_POSITIONS_SINCE = (0, 19), (0, 23)


def repeats_heads_for_flash(model: Model, train: TrainSettings) -> bool:
    """Whether keys and values are copied to all heads before flash attention, in this version of transformers."""
    return has_fact("transformers", "repeats_heads_for_flash", model.config.model_type, library_version(train))


def types_gaining_sdpa(model: Model, train: TrainSettings) -> frozenset[str]:
    """Types within a model that have SDPA in this version of transformers, and lack it in another."""
    if framework_of(train).classes != "as they are":
        return frozenset()
    in_some, here = types_with("transformers", "without_sdpa"), types_without("sdpa", version_of_classes(train))
    return (in_some - here).intersection(kinds_within(model.config.values))


def joins_rows(train: TrainSettings) -> bool:
    """Whether the samples of a batch stand in one row; trl's packing does that (strategies bfd and ffd)."""
    if train.padding_free is not None:
        return train.padding_free
    trl = stated(train, "trl")
    return train.packing and trl is not None and trl >= _TRL_FLATTENS_SINCE


def separates_documents(train: TrainSettings) -> bool:
    """Whether samples of one row do not see one another: transformers sees that positions begin anew."""
    if train.document_mask is not None:
        return train.document_mask
    trl = stated(train, "trl")
    knows_positions = library_version(train) >= BOOLEAN_SINCE and (trl is None or trl >= _TRL_POSITIONS_SINCE)
    return joins_rows(train) and (train.attention in KEEPS_NO_SCORES or knows_positions)


def check_padding(train: TrainSettings) -> None:
    """Refuses a batch that is said to be without padding and to hold some. Raises ScenarioError."""
    if train.padding and joins_rows(train):
        raise ScenarioError("train.padding", "samples that stand in one row have no padding; leave out one of the two")


def rows_of(train: ResolvedTrain, batch: int, sequence: int) -> tuple[int, int]:
    """Rows and tokens of a row that the model gets for a batch of samples."""
    return (1, batch * sequence) if train.padding_free else (batch, sequence)


def masks_note(train: ResolvedTrain) -> str:
    """What attention is handed for padding or packed samples, in one sentence; empty for a batch without either."""
    if framework_of(train).classes != "as they are" or not (train.padding or train.document_mask):
        return ""
    if train.attention == "flash":
        return "flash attention leaves padding out: it keeps queries, keys and values of the other tokens" * bool(
            train.padding
        )
    if train.attention == "flex":
        return ""  # a mask of blocks
    batch, sequence = rows_of(train, train.micro_batch_size, train.sequence_length)
    why = f"{train.padding:.0%} padding" if train.padding else "packed samples that do not see one another"
    kernel = "; SDPA's flash kernel takes none" if train.attention in RUNS_SDPA else ""
    return f"{why}: attention gets a mask of {batch} × {sequence:,} × {sequence:,} entries{kernel}"


def with_masks(execution: Execution, train: ResolvedTrain, model: Model) -> Execution:
    """The execution with what a batch of these samples hands attention."""
    if framework_of(train).classes != "as they are" or train.attention == "flex":
        return execution
    documents = train.document_mask and train.attention != "flash"
    given = documents and framework_of(train).brings_masks
    form: Literal["bool", "float", "given"] = (
        "given" if given else "float" if library_version(train) < BOOLEAN_SINCE else "bool"
    )
    found = replace(
        execution, padding=train.padding > 0, padding_share=train.padding, documents=documents, mask_form=form,
        wide_softmax=_holds_for_classes("wide_softmax", train, model),
    )  # fmt: skip
    return _around_sdpa(found, train, model) if train.attention in RUNS_SDPA else found


def _around_sdpa(execution: Execution, train: ResolvedTrain, model: Model) -> Execution:
    """With what the classes of this version of transformers do before they call SDPA."""
    version = version_of_classes(train) if torch_version(train) >= _TAKES_GROUPS else ()  # as before any version
    return replace(
        execution, always_masked=_holds_for_classes("always_masked", train, model),
        sdpa_repeats_heads=_holds_for_classes("sdpa_repeats_heads", train, model, version),
        sdpa_copies_inputs=_holds_for_classes("sdpa_copies_inputs", train, model),
    )  # fmt: skip


def _holds_for_classes(fact: str, train: ResolvedTrain, model: Model, version: tuple[int, ...] | None = None) -> bool:
    """Whether a fact holds for a class within the model in the version of transformers that runs."""
    kinds, version = kinds_within(model.config.values), version_of_classes(train) if version is None else version
    return any(has_fact("transformers", fact, kind, version) for kind in kinds)


RUNS_SDPA = frozenset({"sdpa", "auto"})
KEEPS_NO_SCORES = frozenset({"flash", "flex"})


def attention_of(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """The attention that runs; raises `ScenarioError` where the class refuses what was asked for.

    `given`: the settings as stated; `train`: with what the framework decides. `auto` is asking for none.
    """
    if train.attention == "auto":
        given = replace(given, attention="sdpa", explicit=given.explicit - {"attention"})
        train = replace(train, attention="sdpa")
    return framework_of(train).attention(given, train, model)


def attention_note(asked: TrainSettings, train: ResolvedTrain, model: Model) -> str:
    """What runs in the place of the attention that was asked for, or grows with the square; empty where neither is."""
    kind = str(model.config.model_type)
    own = framework_of(train).attention_note(asked, train, kind)
    if own:
        return own
    asks = "attention" in asked.explicit and asked.attention != "auto"
    if asks and asked.attention != train.attention:
        return f"attention {asked.attention} changed nothing: {train.framework} runs {train.attention} for {kind}"
    inner, version = model.config.values.get("text_config"), version_of_classes(train)
    text = str(inner.get("model_type")) if isinstance(inner, dict) else kind
    if not asks and has_fact("transformers", "eager_unasked", kind, version):
        return (
            f"eager attention, which this version of transformers chooses for {kind}; --attention sdpa keeps no scores"
        )
    runs_eager = train.attention == "eager" or (train.attention == "auto" and text != kind)
    scores = text in types_without("sdpa", version) and not has_fact("transformers", "without_attention", text)
    if runs_eager and scores and framework_of(train).classes == "as they are":
        kernel = "" if {text, kind} & types_without("flash", version) else "; --attention flash keeps none"
        return f"eager attention, as {text} has no SDPA: scores grow with the square of the sequence{kernel}"
    return ""
