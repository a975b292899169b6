"""A generation whose model `device_map="auto"` lays over several GPUs: its cards, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.hardware import Gpu
from vramwise.hardware.room import Room, room_of, rooms_of
from vramwise.models import Model
from vramwise.records import record
from vramwise.result import Node
from vramwise.scenario import Scenario
from vramwise.serving.common.answer import amount
from vramwise.serving.transformers.cards import Card, bytes_in_host, cards_of
from vramwise.serving.transformers.device_map import device_map
from vramwise.serving.transformers.moments import Plan


@record
class LaidOver:
    """The cards that hold a part of the model, of `count`; `host_bytes` of its weights find no place on them. `rooms`:
    those of all cards, where they are unequal."""

    cards: tuple[Card, ...]
    count: int
    host_bytes: int
    refuses_host: bool
    rooms: tuple[Room, ...] = ()

    def beyond(self, place: int) -> int:
        """How much more is usable on the card at a place than on the smallest."""
        usable = [room.capacity.usable_bytes for room in self.rooms]
        return usable[self.cards[place].number] - min(usable) if usable else 0

    def notes(self, fullest: int, weights: Node) -> Iterator[str]:
        """Whose answer it is, and what lies in the host's memory."""
        number = self.cards[fullest].number
        whose = "the one with the least room left" if self.rooms else "the fullest"
        yield (
            f'the answer is for {whose}, GPU {number}: device_map="auto" lays the layers over {self.count} GPUs, '
            f"{amount(weights.bytes)} of weights on this one"
        )
        if not self.host_bytes:
            return
        left = amount(self.host_bytes)
        yield (
            f'device_map="auto" finds no room on the GPUs for {left} of the weights and leaves them in host memory, '
            "from where every token copies them; the answer has them on the last GPU"
        )
        if self.refuses_host:
            yield "bitsandbytes refuses weights in host memory unless llm_int8_enable_fp32_cpu_offload is set"


def laid_over(scenario: Scenario, model: Model, plan: Plan, gpu: Gpu | None, context: Node) -> LaidOver | None:
    """The model over the scenario's GPUs, each with what the driver reports free beside a context; None for one."""
    count = scenario.num_gpus or 1
    if count < 2:
        return None
    room = room_of(scenario, gpu)
    rooms = rooms_of(scenario)
    free: int | tuple[int, ...] | None = None if room is None else max(0, room.free_bytes - context.bytes)
    free = tuple(max(0, one.free_bytes - context.bytes) for one in rooms) or free
    placed = device_map(model, plan.storage, count, free, plan.version)
    rule = plan.storage.quantization
    refuses = rule is not None and rule.layout.startswith("bnb")
    return LaidOver(cards_of(model, placed, count), count, bytes_in_host(model, placed, plan.storage), refuses, rooms)
