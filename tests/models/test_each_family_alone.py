"""What a family's operations need is imported with the family: no other family has to be there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from config_strategies import STRATEGIES

from by_turns import by_turns, is_thorough
from vramwise.models.registry import FAMILY_OF_TYPE

RECORDED_ALONE = """
import os
import sys
from hypothesis import HealthCheck, Phase, given, settings
from config_strategies import STRATEGIES
from vramwise.errors import UndescribedOperationError, VramwiseError
from vramwise.models import describe
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

def fault(config):
    try:
        record_forward(describe(config), Execution(attention="eager"), batch=2, sequence=8)
    except UndescribedOperationError as error:
        return str(error)
    except VramwiseError:
        pass
    return ""

for model_type in sys.argv[1:]:
    drawn = []
    @settings(max_examples=3, phases=[Phase.generate], database=None, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(STRATEGIES[model_type]())
    def draw(config):
        drawn.append({**config, "model_type": model_type})
    draw()
    if not os.fork():  # the child alone imports the family
        try:
            found = {fault(config) for config in drawn} - {""}
        except Exception as error:
            found = {repr(error)}
        print(*(f"{model_type}: {one}" for one in sorted(found)), sep="\\n", end="\\n" if found else "", flush=True)
        os._exit(0)
    os.wait()
"""


def asked_types() -> list[str]:
    """One type of each second family in a normal run, every type in a thorough one."""
    if is_thorough():
        return sorted(STRATEGIES)
    first = {FAMILY_OF_TYPE[model_type]: model_type for model_type in sorted(STRATEGIES, reverse=True)}
    return [first[family] for family in by_turns(sorted(first), 2)]


def test_each_family_brings_what_it_needs() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RECORDED_ALONE, *asked_types()],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == ""
