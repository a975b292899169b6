"""`@pytest.mark.vram("24GiB")`: a test whose body runs on fake CUDA tensors and fails where it would not fit.

Installed with vramwise and asleep until a test has the mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_configure(config: Any) -> None:
    config.addinivalue_line(
        "markers", 'vram(memory, gpu=None): fails when the test would take more memory of a GPU than "24GiB", say'
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[Any]:
    mark = item.get_closest_marker("vram")
    if mark is None:
        return (yield)
    from vramwise.dryrun.block import dry_run
    from vramwise.units import parse_bytes

    if len(mark.args) != 1 or set(mark.kwargs) - {"gpu"}:
        raise pytest.UsageError('vram: expected one size and perhaps a card: @pytest.mark.vram("24GiB", gpu="4090")')
    limit = parse_bytes(str(mark.args[0]))
    with dry_run(mark.kwargs.get("gpu"), memory=limit) as seen:
        found = yield
    if seen.total_needed > limit:
        places = "\n  ".join(seen.largest())
        pytest.fail(f"vram: {seen}; the limit is {mark.args[0]}\n  {places}", pytrace=False)
    return found
