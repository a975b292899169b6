"""Builds sdist and wheel so that the same commit gives the same bytes: python tools/packages/build.py FOLDER

SOURCE_DATE_EPOCH is the commit's time where it is not set. Needs hatchling (pip install hatchling).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(folder: Path, kinds: tuple[str, ...] = ("sdist", "wheel")) -> list[Path]:
    """The files that were built, sdist first."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = [word for kind in kinds for word in ("-t", kind)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder.resolve()), *targets],
        cwd=ROOT, env={**os.environ, "SOURCE_DATE_EPOCH": commit_time()}, check=True, capture_output=True,
    )  # fmt: skip
    return sorted(folder.glob("vramwise-*"))


def commit_time() -> str:
    """Seconds of the epoch as text: as the environment says, else of the last commit, else the first that a zip has."""
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    if stated:
        return stated
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return said or "315532800"


if __name__ == "__main__":
    print(*build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")), sep="\n")
