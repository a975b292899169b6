"""The time that is asked about, and the windows in which it is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from vramwise.records import record

DAY_S: Final = 86_400
HOUR_S: Final = 3_600
TOKENS: Final = (
    "vllm:generation_tokens_total", "vllm:prompt_tokens_total", "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
)  # fmt: skip
"""Counters of tokens that engines export."""
STEPS: Final = ("vramwise_steps_total",)
"""What `vramwise.watch(serve=…)` exports."""


@record
class Window:
    """A stretch of time, up to `end_s`."""

    end_s: int
    width_s: int

    @property
    def start_s(self) -> int:
        return self.end_s - self.width_s

    def halves(self, step_s: int) -> tuple[Window, Window]:
        """The two halves, cut at a step, the earlier first."""
        late = -(-self.width_s // (2 * step_s)) * step_s
        return Window(self.end_s - late, self.width_s - late), Window(self.end_s, late)


@record
class Asked:
    """What a person wants to know: which time, at which resolution, and which labels and counters beside the usual."""

    until_s: int
    since_s: int
    step_s: int
    job_labels: tuple[str, ...] = ()
    command_label: str | None = None
    tokens: tuple[str, ...] = TOKENS
    steps: tuple[str, ...] = STEPS

    @property
    def start_s(self) -> int:
        return self.until_s - self.since_s

    @property
    def windows(self) -> list[Window]:
        """Days where it is three or more of them, else hours, else the whole; the earliest first."""
        whole = DAY_S if self.since_s >= 3 * DAY_S else HOUR_S if self.since_s >= 3 * HOUR_S else self.since_s
        width = max(-(-whole // self.step_s) * self.step_s, self.step_s)
        ends = range(self.until_s, self.start_s, -width)
        return [Window(end, min(width, end - self.start_s)) for end in reversed(ends)]


def when(at_s: float) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
