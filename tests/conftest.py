"""Property tests are judged by what they find, not by how busy the machine is; screens are 100 columns wide."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
from warm_python import WarmPython

# Before torch is imported, here and in processes that tests start: for products of a few rows its threads wait for one
# another four times as long as they compute, and tests already run beside one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test asks a real hub; tests of the network have one of their own on loopback.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Nor does one read or write the user's recorded shapes; tests of these name a folder.
os.environ["VRAMWISE_CACHE"] = "off"

# The same examples each time, so that a change is judged by what it changes; a thorough run looks for new ones.
settings.register_profile("vramwise", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
# --hypothesis-profile thorough, as scripts/test --thorough says; the weekly run asks for more.
EXAMPLES = int(os.environ.get("VRAMWISE_EXAMPLES", "60"))
settings.register_profile("thorough", max_examples=EXAMPLES, deadline=None, print_blob=True, derandomize=False)
settings.load_profile("vramwise")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget-cpu-s", type=float, default=0.0, help="CPU seconds after which no test is begun")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Other work on the machine takes none of the budget: it is this process's own time and its children's."""
    budget_s = item.config.getoption("--budget-cpu-s")
    if budget_s and sum(os.times()[:4]) > budget_s:
        pytest.skip(f"not begun within {budget_s:.0f} s of CPU")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What collecting brings, modules of torch and transformers and the tests themselves, stays to the end: Python's
    collector looks for no garbage while it comes, nor later in it, which took a second each time; what tests make
    it looks through a thirtieth as often as it would by itself."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """A Python with torch and transformers imported, of which what a test starts is a fork (warm_python.py)."""
    warm = WarmPython()
    yield warm
    warm.close()


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of what this machine's runs showed enters a test that does not name one."""
    monkeypatch.setenv("VRAMWISE_SITE", "")


@pytest.fixture(autouse=True)
def terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


if any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd"))):  # screens are those of a machine without a card

    @pytest.fixture(autouse=True)
    def no_card_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("vramwise.hardware.machine.here.DRIVERS", ())
