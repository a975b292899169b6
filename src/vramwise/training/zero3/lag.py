"""By how many layers a card is behind its host, with the weights that were freed and wait for it."""

from __future__ import annotations

from vramwise.records import record


@record
class Lag:
    """Layers that the host may be ahead of the card in a forward pass, and bytes of each gathered weight of one.

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
