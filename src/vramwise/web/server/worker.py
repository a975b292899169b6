"""One answering process: `python -m vramwise.web.server.worker KIND FOLDER…`.

A question comes on standard input as `NAME LENGTH PROCESSES` and a line break, then the body; so many processes may
work on it. The answer goes to standard output as `EXIT LENGTH` and a line break, then the text. EXIT is the exit code
of an error, else 0; 75 (EX_TEMPFAIL) where a hub would have to be asked, which a worker of the kind `quick` leaves to
others.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence

ASKS_A_HUB = 75
_WARMED = (
    {"model": "qwen2.5-0.5b", "task": "serve", "gpu": "h100", "serve": {"max_model_len": 2048}},
    {"model": "qwen2.5-0.5b", "task": "train", "gpu": "h100", "train": {"method": "lora"}},
)
"""Asked once at the start, so that the first person does not wait for the imports."""


def main(arguments: Sequence[str]) -> int:
    """Answer until the parent closes the pipe."""
    kind, *folders = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: the parent ends its workers
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not stand among the answers
    from vramwise.processes import state_processes
    from vramwise.web.api import answer_text
    from vramwise.web.server.confined import confine

    if kind == "quick":
        from vramwise.sources.places import ask_nobody

        ask_nobody()
    if kind != "asking":
        for scenario in _WARMED:
            answer_text("estimate", json.dumps(scenario))
    confine(folders)
    while line := questions.readline():
        name, length, processes = line.split()
        state_processes(int(processes))
        body = questions.read(int(length))
        text = answer_text(name.decode(), body.decode("utf-8", "replace"))
        content = text.encode()
        answers.write(b"%d %d\n" % (exit_code_of(text), len(content)))
        answers.write(content)
        answers.flush()
    return 0


def exit_code_of(text: str) -> int:
    """The exit code of the error that an answer is, 0 where it is none."""
    if not text.startswith('{"error": '):
        return 0
    error = json.loads(text)["error"]
    return ASKS_A_HUB if error["kind"] == "WouldAsk" else int(error["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
