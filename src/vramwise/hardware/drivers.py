"""Versions of GPU drivers: what one looks like, and which there can be."""

from __future__ import annotations

import re
from typing import Final

from vramwise.errors import ScenarioError, clipped
from vramwise.hardware.gpu import Gpu

OLDEST_BRANCH: Final = 346
"""Of CUDA 7.0 (CUDA Toolkit release notes, table of toolkits and driver versions: 346.46)."""
NEWEST_BRANCH: Final = 610
"""NVIDIA data center driver branches as of June 2026."""
BRANCHES_TO_COME: Final = 90
"""From branch 535 of 2023 to 610 some 25 a year: more than three years ahead a number is a mistake."""
_VERSION = re.compile(r"\d{1,4}(\.\d{1,6}){0,3}")


def check_driver(driver: str, gpu: Gpu | None) -> None:
    """Raises ScenarioError for what is no version of a driver; of a card that is not NVIDIA's, of any driver."""
    text = driver.strip()
    if not _VERSION.fullmatch(text):
        raise ScenarioError("driver", f'expected a version such as 570.86.15, got "{clipped(driver)}"')
    branch = int(text.partition(".")[0])
    if gpu is None or gpu.vendor != "NVIDIA" or OLDEST_BRANCH <= branch <= NEWEST_BRANCH + BRANCHES_TO_COME:
        return
    looks = "; it looks like a version of CUDA" if 7 <= branch < 20 else ""
    raise ScenarioError(
        "driver",
        f"NVIDIA has no driver {clipped(text)}{looks}: branches go from {OLDEST_BRANCH} to {NEWEST_BRANCH}, as in "
        "570.86.15 (nvidia-smi prints it at the top)",
    )


def branch_number(driver: str | None) -> int | None:
    """The branch of a driver's version, 570 of 570.86.15; None where the version is unknown."""
    return None if driver is None else int(driver.strip().partition(".")[0])
