"""What DeepSpeed's ZeRO stage 3 keeps gathered: modules in the order in which they run, and the coordinator's rule."""

from __future__ import annotations

from vramwise.records import record

HEAD = -1
OUTSIDE = -2
BELOW = -3
"""What stands for a layer's number in the output layer, in other modules, and in those before the first layer."""


@record
class Lag:
    """Layers that the host may be ahead of the card in a forward pass, and bytes of each gathered weight of one, which
    were freed and wait.

    `expected`: half-way between a host that is not ahead and one that the stream's queue holds back; none where the
    card waits for gathers or for the host.
    """

    most: int = 0
    expected: int = 0
    sizes: tuple[int, ...] = ()

    @property
    def layer_bytes(self) -> int:
        return sum(self.sizes)


NO_LAG = Lag()
