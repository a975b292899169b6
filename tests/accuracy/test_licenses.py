"""benchmarks/cases/licenses.csv: under which licence the repositories and packages stand that published the measured
values."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from vramwise.accuracy.cases import Case, read_cases

CASES = Path(__file__).parents[2] / "benchmarks" / "cases"
KNOWN = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "GPL-3.0", "LGPL-3.0",
         "Llama-2-Community", "MIT", "UPL-1.0", "none stated"}  # fmt: skip
A_COMMIT = r"[\w./-]+@[0-9a-f]{7,40}(:[\w./-]+)?"
A_RELEASE = r"[\w-]+ [\d.]+ on PyPI:[\w./-]+"
NAMED = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|[\w-]+(?= [\d.]+ on PyPI)")


def test_five_in_six_cases_have_a_source_whose_licence_was_read():
    with (CASES / "licenses.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    licenses = {row["repository"]: row["license"] for row in rows}
    assert set(licenses.values()) <= KNOWN
    assert len(licenses) == len(rows)
    assert all(re.fullmatch(f"{A_COMMIT}|{A_RELEASE}", row["read_in"]) for row in rows)
    cases = [case for path in sorted(CASES.glob("*.jsonl")) for case in read_cases(path) if isinstance(case, Case)]
    assert all(case.source for case in cases)
    sources = [NAMED.match(case.source) for case in cases]
    named = [found[0] for found in sources if found]
    assert set(licenses) <= set(named)
    assert sum(name in licenses for name in named) >= 5 / 6 * len(cases)
