"""A process that runs many commands one after another: `python many_inputs.py CASES.json RESULTS.jsonl`.

CPU time and memory are measured here, for each command by itself; one that takes too much is ended and goes on with the
next. The parent sees which command was running when the process itself dies.
"""

from __future__ import annotations

import base64
import io
import json
import os
import resource
import signal
import sys
from pathlib import Path

MOST_CPU_SECONDS = 4.0
MOST_ADDRESS_BYTES = 3 * 2**30
KEPT = 3000


class Hung(BaseException):
    """No Exception, so that no handler of the code under test takes it for its own."""


def main(cases: str, results: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_BYTES, MOST_ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _hung)
    _without_torch()
    with open(results, "w", encoding="utf-8") as out:
        for number, case in enumerate(json.loads(Path(cases).read_text("utf-8"))):
            out.write(json.dumps({"started": number}) + "\n")
            out.flush()
            out.write(json.dumps({"number": number, **_run(case)}) + "\n")
            out.flush()


def _hung(*_: object) -> None:
    raise Hung


def _without_torch() -> None:
    """What is installed here beside vramwise must not count: torch and transformers take seconds to import."""
    from vramwise.cli import main as _  # noqa: F401
    from vramwise.measure import launch, libraries
    from vramwise.models import meta_device

    for module in (launch, libraries):
        module.is_installed = lambda name: False
    meta_device.has_transformers = lambda: False


def _run(case: dict[str, object]) -> dict[str, object]:
    from vramwise.cli.main import main as vramwise

    given = case.get("stdin")
    stdin = base64.b64decode(str(given)) if given is not None else b""
    out, err = io.BytesIO(), io.BytesIO()
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    writers = [io.TextIOWrapper(to, encoding="utf-8", write_through=True) for to in (out, err)]
    sys.stdout, sys.stderr = writers
    before = resource.getrusage(resource.RUSAGE_SELF)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_SECONDS)
    try:
        code: object = vramwise([str(word) for word in case["argv"]])
    except Hung:
        code = "hung"
    except BaseException as problem:
        code = f"{type(problem).__name__}: {problem}"[:KEPT]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdin, sys.stdout, sys.stderr = streams
    after = resource.getrusage(resource.RUSAGE_SELF)
    printed, said = (stream.getvalue().decode("utf-8", "replace") for stream in (out, err))
    del writers  # which close what they write to
    return {
        "code": code,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "grown_bytes": 1024 * (after.ru_maxrss - before.ru_maxrss),
        "out_length": len(printed),
        "out": printed[:KEPT],
        "err": said[:KEPT],
        "steers": sorted({character for character in printed + said if _steers(character)}),
        "is_json": _is_json(printed),
    }


def _steers(character: str) -> bool:
    return (character < " " and character != "\n") or "\x7f" <= character < "\xa0"


def _is_json(text: str) -> bool:
    try:
        return all(json.loads(line) is not None for line in text.splitlines()) or bool(json.loads(text))
    except ValueError:
        try:
            json.loads(text)
        except ValueError:
            return False
        return True


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    main(*sys.argv[1:])
