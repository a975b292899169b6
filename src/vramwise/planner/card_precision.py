"""Options in fp16 on cards that do not compute in bf16, where nobody stated a precision: stated in each."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import VramwiseError
from vramwise.planner.changes import changed
from vramwise.scenario import Scenario
from vramwise.training.recipe.precision import in_fp16, is_open, refused_in_fp16, stating, takes_fp16
from vramwise.training_parts import as_resolved


def for_the_card(scenario: Scenario) -> Scenario:
    """The scenario with a precision that its cards compute in stated, where it stated none and they have no bf16."""
    values = precision_of_the_card(scenario)
    return changed(scenario, values) if values else scenario


def precision_of_the_card(scenario: Scenario) -> Mapping[str, object]:
    """The settings that say so; empty where bf16 is right, and where the framework has no other.

    Also for programs that would run in emulated bf16 there, which is several times slower: who is advised takes fp16.
    Not where the program makes adapters bf16 in any case, as TRL does on a quantized base: those train in emulated
    bf16 alone.
    """
    if not is_open(scenario):
        return {}
    try:
        decided = as_resolved(scenario)
        if takes_fp16(scenario):  # what it is estimated in unasked
            return stating(decided.precision, decided) if decided.compute_dtype == "fp16" else {}
        values = in_fp16(decided)
        made = as_resolved(changed(scenario, values))
    except VramwiseError:
        return {}
    return {} if refused_in_fp16(made) else values
