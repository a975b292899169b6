"""Random whole scenarios: an answer that holds together however it is asked for, or one clear line.

The normal run draws the same hundred scenarios every time, `--hypothesis-profile thorough` five thousand new ones.
"""

from __future__ import annotations

from typing import Any

import pytest
from asked_otherwise import CHECKS
from holds import answer, holds_together
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whole_scenarios import JOBS, SHARE

THOROUGH = settings.get_current_profile_name() == "thorough"
HUNDREDS = 50 if THOROUGH else 1


@pytest.mark.parametrize("job", JOBS)
def test_every_answer_holds(job: str) -> None:
    @settings(
        max_examples=int(SHARE[job] * HUNDREDS) + 1, derandomize=not THOROUGH, deadline=None, database=None,
        print_blob=False, suppress_health_check=list(HealthCheck), report_multiple_bugs=True,
    )  # fmt: skip
    @given(scenario=JOBS[job], check=st.sampled_from(CHECKS))
    def every_answer_holds(scenario: dict[str, Any], check: Any) -> None:
        result = answer(scenario)
        if result is not None:
            holds_together(result)
            check(scenario, result)

    every_answer_holds()
