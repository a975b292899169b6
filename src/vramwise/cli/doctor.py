"""`vramwise doctor [FILE…]`: what this machine is, or a colleague's, from the text that its tools printed."""

from __future__ import annotations

import argparse
import json
import sys

from vramwise.errors import SourceError
from vramwise.files import read_at_most, shown_path
from vramwise.units import MIB, format_bytes

HELP = "GPUs, driver, links, topology, network, software of this machine, or of another one from pasted text"
LARGEST_TEXT = 8 * MIB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="text of nvidia-smi, its -q, topo -m, topo -p2p r and nvlink -s, of amd-smi, rocm-smi, ds_report, "
        "collect_env, nccl-tests or a GPU exporter (- reads standard input); without one this machine is looked at",
    )
    parser.add_argument("--watch", action="store_true", help="go on and show live memory, use and network throughput")
    parser.add_argument("--json", action="store_true", help="print JSON only")


def run(args: argparse.Namespace) -> int:
    """Print the facts; 0 also where no NVIDIA tool is found. Raises SourceError for text that nobody knows."""
    from vramwise.cli.doctor_answers import machine_answer, pasted_answer
    from vramwise.cli.screens.doctor import doctor_lines
    from vramwise.cli.screens.paint import show

    if args.watch:
        from vramwise.cli.watch import watch

        return watch(interval_s=1.0, count=None, output=None, exporter=None)
    answers: list[dict[str, object]] = []
    if args.files:
        from vramwise.hardware.machine.pasted import read_pasted

        answers += [pasted_answer(read_pasted(_text(name), shown_path(name)), name) for name in args.files]
    else:
        answers.append(machine_answer())
    if args.json:
        print(json.dumps(answers if len(answers) > 1 else answers[0], indent=1, allow_nan=False, ensure_ascii=False))
        return 0
    for place, answer in enumerate(answers):
        if place:
            print()
        show(doctor_lines(answer))
    return 0


def _text(name: str) -> str:
    """What was pasted or saved. Raises SourceError for more than any tool prints."""
    most = LARGEST_TEXT + 1
    content = sys.stdin.buffer.read(most) if name == "-" else read_at_most(name, most)
    if len(content) > LARGEST_TEXT:
        limit = format_bytes(LARGEST_TEXT, "MiB", 0)
        raise SourceError(f"{shown_path(name)}: larger than {limit}: give the part that the tool printed")
    return content.decode("utf-8", "replace")
