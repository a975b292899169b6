"""A server at many lengths of a request at once: the code of its need on a column of lengths (vramwise.points)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.hardware import Gpu
from vramwise.hardware.room import room_of
from vramwise.models import Model
from vramwise.points.columns import Lists
from vramwise.points.needs import ManyNeeds
from vramwise.points.run import Points
from vramwise.scenario import Scenario
from vramwise.serving.common.idle_experts import without_idle_experts
from vramwise.serving.packages import rules_of

_ALONE = -1


def needs_of_lengths(scenario: Scenario, model: Model, gpu: Gpu | None, lengths: Sequence[int]) -> ManyNeeds | None:
    """What a server needs with each `max_model_len`.

    None where the engine's need is not made for many, or hangs on more: on others on the card, on a cache of a given
    size, on a server that sleeps. Raises ManyNumbers where the answer asks for one length after all.
    """
    rules, serve, room = rules_of(scenario.serve.engine), scenario.serve, room_of(scenario, gpu)
    model = without_idle_experts(model)
    shared = room is not None and (room.reserve_bytes or room.held_bytes or room.usable_bytes != room.seen_bytes)
    needs = rules.needs
    if needs is None or shared or serve.kv_cache_memory_bytes is not None or serve.sleep_level:
        return None
    names: list[str] = []

    def work(at: dict[str, Any]) -> list[object]:
        asked = scenario.replace(serve=serve.replace(max_model_len=at["length"]))
        try:
            rules.check(asked, model, gpu)
            needed, phase = needs(asked, model, gpu)
        except VramwiseError:
            return [0, 0, _ALONE]
        if phase not in names:
            names.append(phase)
        return [needed.expected, needed.high, names.index(phase)]

    try:
        needed, high, phases = Points({"length": lengths}).outcomes(work, 3)
    except OverflowError:
        needed, high, phases = Points({"length": lengths}, Lists()).outcomes(work, 3)
    usable = None if room is None else room.usable_bytes
    return ManyNeeds(None, needed, high, phases, tuple(names), {}, usable, runs=True)
