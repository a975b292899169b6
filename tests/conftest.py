"""Property tests are judged by what they find, not by how busy the machine is; screens are 100 columns wide."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("vramwise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=200, deadline=None, print_blob=True)  # --hypothesis-profile thorough
settings.load_profile("vramwise")


@pytest.fixture(autouse=True)
def terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
