"""How far estimates are from measured cases: reading the cases, comparing, and the table of errors."""

from vramwise.accuracy.cases import Case, UnusableLine, case_files, read_cases
from vramwise.accuracy.comparison import Comparison, OomComparison, Outcome, compare
from vramwise.accuracy.report import Report, judge
from vramwise.accuracy.table import Table, tabulate

__all__ = [
    "Case",
    "Comparison",
    "OomComparison",
    "Outcome",
    "Report",
    "Table",
    "UnusableLine",
    "case_files",
    "compare",
    "judge",
    "read_cases",
    "tabulate",
]
