"""What a watched training teaches of its machine."""

from __future__ import annotations

import os

from vramwise.estimation import terms_asked
from vramwise.measure.learning import Counters, run_of_counters
from vramwise.scenario import Scenario
from vramwise.site.run import Run
from vramwise.sources.portable import portable_scenario
from vramwise.watching.account import Account
from vramwise.watching.saving import facts_of


def run_of_watch(scenario: Scenario, account: Account, device: str) -> tuple[Run | None, tuple[str, ...]]:
    """The run of a watch that ended well, with the terms that its counters determine, and why others are not.

    Outside torch is what the driver counted when it was last asked, less what torch reserved in that step.
    """
    facts = facts_of(device)
    result, asked = terms_asked(scenario)
    both = [row for row in account.rows if row.process is not None and row.reserved is not None]
    outside = max(0, (both[-1].process or 0) - (both[-1].reserved or 0)) if both else None
    sizes = account.counters()
    seen = Counters(
        allocated=sizes.get("peak_allocated"), reserved=sizes.get("peak_reserved"), outside=outside, context=None,
        total=facts.get("gpu_total_bytes"), processes=int(os.environ.get("WORLD_SIZE", "1")),
    )  # fmt: skip
    return run_of_counters(seen, asked, result, facts, "watch", portable_scenario(scenario))
