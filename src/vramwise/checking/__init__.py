"""Whether a job fits before it starts: one record for submit scripts, prologs, CI, pre-commit and trainers.

`vramwise.check` takes a command, a file, a scenario or a model with keywords; `vramwise.checking.trainer` looks at a
live Trainer before its first step.
"""

from __future__ import annotations

from vramwise.checking.job import Check, check

__all__ = ["Check", "check"]
