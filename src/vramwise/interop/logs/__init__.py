"""Start-up logs of inference engines: what they print, the scenario behind it, and estimates held against them."""

from __future__ import annotations

from vramwise.interop.logs.comparison import Comparison, Row, compare_log
from vramwise.interop.logs.reading import Reading, read_log

__all__ = ["Comparison", "Reading", "Row", "compare_log", "read_log"]
