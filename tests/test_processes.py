"""Processes that work for this one end at once and without a word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ENDED_EARLY = """
import random, sys, time
from functools import partial
from vramwise.planner.beside import Beside

def answer(size, number):
    return b"." * size

if __name__ == "__main__":
    random.seed(1)
    for _ in range(20):
        with Beside(2) as beside:
            answers = beside.in_order(partial(answer, random.choice((10, 300_000))), range(60))
            for _ in range(random.randrange(1, 8)):
                next(answers)
    print("ended")
"""
FAILS_TO_READ = """
from vramwise.planner.ahead import pool_of

class Cut:
    def __reduce__(self):
        return (__import__("pickle").loads, (b"",))

if __name__ == "__main__":
    pool = pool_of(2)
    try:
        pool.submit(len, Cut()).result()
    except Exception as problem:
        print(type(problem).__name__)
"""


def _said(tmp_path, code: str, **environment: str) -> tuple[str, str]:
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False, env=os.environ | environment
    )
    return done.stdout, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe is another thing there")
def test_processes_that_are_sending_answers_end(tmp_path):
    assert _said(tmp_path, ENDED_EARLY) == ("ended\n", "")


def test_a_process_whose_question_was_cut_off_says_nothing(tmp_path):
    assert _said(tmp_path, FAILS_TO_READ, VRAMWISE_DEBUG="") == ("BrokenProcessPool\n", "")
