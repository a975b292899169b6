"""Every case of grid.toml that the file of rows lacks, one process after another.

    python grid.py --rows ../../../tests/golden/vllm_profile_run.jsonl 0.19.0=FOLDER 0.33.0=FOLDER …

FOLDER holds an unpacked wheel of that version; FOLDER:OLDER puts a folder of older packages before the environment's.
A finished case is a line at once. Cases that fail are named at the end with the last line of their error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
TIMEOUT_S = 600


class Case(NamedTuple):
    """One start of vLLM."""

    version: str
    model: str
    dtype: str
    capability: str
    tensor_parallel_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int

    def command(self, folder: str) -> list[str]:
        return [
            sys.executable, str(HERE / "profile_run.py"), "--vllm", folder, "--model", self.model,
            "--dtype", self.dtype, "--capability", self.capability, "--tp", str(self.tensor_parallel_size),
            "--max-num-batched-tokens", str(self.max_num_batched_tokens), "--max-num-seqs", str(self.max_num_seqs),
            "--max-model-len", str(self.max_model_len),
        ]  # fmt: skip


def cases() -> Iterator[Case]:
    for group in tomllib.loads((HERE / "grid.toml").read_text())["group"]:
        for version, model, dtype, capability, ranks, (tokens, rows) in product(
            group["versions"], group["models"], group.get("dtypes", ["bfloat16"]), group.get("capabilities", ["9.0"]),
            group["tensor_parallel_sizes"], group["shapes"],
        ):  # fmt: skip
            yield Case(version, model, dtype, capability, ranks, tokens, rows, group.get("max_model_len", 8192))


def case_of(row: Mapping[str, Any]) -> Case:
    """The start that a row is of. Raises SystemExit for a row that another version of these scripts wrote."""
    lacks = [field for field in Case._fields if field not in row]
    if lacks:
        raise SystemExit(f"--rows: a row without {', '.join(lacks)} is of another version: record into a new file")
    return Case(*(row[field] for field in Case._fields))


def run(case: Case, place: str) -> dict[str, Any]:
    """The case's row. Raises RuntimeError with the last line of what the process wrote where it failed."""
    folder, _, older = place.partition(":")
    paths = [older, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(case.command(folder), env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode or not done.stdout.strip():
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    answer.pop("seconds")
    answer["peaks"].pop("profile run", None)
    return {**answer, "recorded": date.today().isoformat()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("wheels", nargs="+", metavar="VERSION=FOLDER")
    args = parser.parse_args()
    places = dict(text.split("=", 1) for text in args.wheels)
    known = {case_of(json.loads(line)) for line in args.rows.read_text().splitlines()} if args.rows.exists() else set()
    failed: dict[Case, str] = {}
    for case in cases():
        if case in known or case in failed or case.version not in places:
            continue
        try:
            row = run(case, places[case.version])
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed[case] = str(error)
            continue
        known.add(case)
        with open(args.rows, "a") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    for case, error in failed.items():
        print(case, error, sep="\n    ")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
