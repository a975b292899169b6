"""The Homebrew formula of a release: python tools/packages/formula.py URL dist/vramwise-0.1.0.tar.gz"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

FORMULA = Path(__file__).parents[2] / "deploy/homebrew/vramwise.rb"


def formula(url: str, sdist: Path) -> str:
    """The formula with the address and the hash of this sdist."""
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    text = FORMULA.read_text("utf-8")
    start = text.index("class ")
    return text[start:].replace('"URL"', f'"{url}"').replace('"SHA256"', f'"{digest}"')


if __name__ == "__main__":
    print(formula(sys.argv[1], Path(sys.argv[2])), end="")
