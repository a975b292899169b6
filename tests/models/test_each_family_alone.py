"""What a family's operations need is imported with the family: no other family has to be there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RECORDED_ALONE = """
import os
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

for model_type, strategy in sorted(STRATEGIES.items()):
    drawn = []
    @settings(max_examples=3, phases=[Phase.generate], database=None, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(strategy())
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


def test_each_family_brings_what_it_needs() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RECORDED_ALONE],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == ""
