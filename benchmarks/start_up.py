"""A cold `vramwise estimate` of each kind beside a bare Python, and one beside the same question put to accelerate.

    python benchmarks/start_up.py [--runs 9] [--without-accelerate]

The commands take turns, A B C A B C …, after one round that is not counted; medians are printed. accelerate answers
with its own functions (`accelerate.commands.estimate`) on a folder that holds the catalog's configuration as a
config.json; only its look-up of the repository on the Hub is left out, so no network time counts against it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import processes

from vramwise.sources import resolve

MODEL = "meta-llama/Llama-3.1-8B"
OTHERS = {
    "vramwise, table": [MODEL, "--style", "table"],
    "vramwise, the door": [MODEL],
    "vramwise, the door of a card": [MODEL, "--gpu", "4060"],
    "vramwise, vLLM": [MODEL, "--task", "serve", "--engine", "vllm", "--gpu", "h100", "--json"],
    "vramwise, training": [MODEL, "--task", "train", "--method", "lora", "--gpu", "h100", "--json"],
}
"""What `vramwise estimate` is asked besides the weights."""
MOST_TIMES_BARE, MOST_MIB, LEAST_TIMES_FASTER = 25, 60, 15
ACCELERATES = "accelerate estimate-memory"
ACCELERATE = """
import argparse, sys
from accelerate.commands import estimate
class Found:
    library_name, config = "transformers", {}
estimate.verify_on_hub = lambda repo, token=None: Found()
dtypes = ["float32", "float16", "int8", "int4"]
estimate.estimate_command(
    argparse.Namespace(model_name=sys.argv[1], library_name="transformers", trust_remote_code=False, dtypes=dtypes)
)
"""


def commands(folder: Path, with_accelerate: bool) -> dict[str, list[str]]:
    """What is compared, by the name in the table."""
    program = Path(sys.executable).with_name("vramwise")
    ours = [str(program)] if program.exists() else [sys.executable, "-m", "vramwise"]
    compared = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "vramwise estimate": [*ours, "estimate", MODEL, "--task", "load", "--json"],
    }
    compared |= {name: [*ours, "estimate", *asked] for name, asked in OTHERS.items()}
    if with_accelerate:
        (folder / "config.json").write_text(json.dumps(resolve(MODEL).config))
        compared[ACCELERATES] = [sys.executable, "-c", ACCELERATE, str(folder)]
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--without-accelerate", action="store_true")
    args = parser.parse_args()
    installed = all(find_spec(name) for name in ("accelerate", "transformers", "torch"))
    with tempfile.TemporaryDirectory() as name:
        compared = commands(Path(name), installed and not args.without_accelerate)
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        runs: dict[str, list[processes.Run]] = {name: [] for name in compared}
        for turn in range(args.runs + 1):
            for name, command in compared.items():
                finished = processes.run(command, offline)
                if turn:
                    runs[name].append(finished)
    print_table({name: processes.summary(finished) for name, finished in runs.items()}, args.runs)


def print_table(rows: dict[str, processes.Summary], count: int) -> None:
    print(f"{processes.machine()}; medians of {count} runs in turns")
    print(f"{'command':<28}{'wall':>9}{'fastest':>9}{'slowest':>9}{'CPU':>9}{'peak':>11}")
    for name, row in rows.items():
        times = "".join(f"{value:>7.3f} s" for value in (row.wall_s, row.fastest_s, row.slowest_s, row.cpu_s))
        print(f"{name:<28}{times}{row.peak_mib:>7.1f} MiB")
    bare, ours = list(rows.values())[:2]
    print(f"vramwise / bare Python: {ours.wall_s / bare.wall_s:.1f} × (at most {MOST_TIMES_BARE})")
    for name in OTHERS:
        print(f"{name} / bare Python: {rows[name].cpu_s / bare.cpu_s:.1f} × of its CPU time")
    print(f"vramwise, peak resident: {ours.peak_mib:.1f} MiB (at most {MOST_MIB})")
    if ACCELERATES in rows:
        print(f"accelerate / vramwise: {rows[ACCELERATES].wall_s / ours.wall_s:.1f} × (at least {LEAST_TIMES_FASTER})")


if __name__ == "__main__":
    main()
