"""Installs what is built as strangers do, one bare environment an extra, and asks each something.

python tools/packages/check.py [EXTRA …]: all of them, the sdist, uvx and pipx where no extra is named. It takes minutes
and a network; exit code 1 where one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from build import ROOT, build

PLAIN = "plain"
TORCH = "torch==2.13.0"  # by itself first, as in scripts/test: the processors' build, a tenth of the size
ESTIMATE = ("estimate", "llama-3.1-8b", "--task", "load", "--json")
ASKED: dict[str, tuple[tuple[str, ...], int]] = {
    PLAIN: (ESTIMATE, 0),
    "hub": (("estimate", "nobody/nothing", "--offline"), 4),
    "torch": (("dry-run", "gpt2", "--task", "train", "--sequence-length", "16", "--json"), 0),
    "gpu": (("gpus", "h100"), 0),
    "parquet": (("gpus", "h100"), 0),
    "bitsandbytes": (ESTIMATE, 0),
    "diffusers": (("dry-run", "sd1.5", "--task", "generate", "--image-size", "64x64", "--json"), 0),
    "timm": (("dry-run", "timm/resnet18", "--task", "load", "--json"), 0),
    "sentence-transformers": (("dry-run", "sentence-transformers/all-MiniLM-L6-v2", "--task", "load", "--json"), 0),
    "profile": (("profile", str(ROOT / "docs/examples/small.pt.trace.json")), 0),
    "web": (("web", "--help"), 0),
    "mcp": (("mcp", "--help"), 0),
    "plot": (ESTIMATE, 0),
    "scale": (("fleet", str(ROOT / "docs/examples/fleet.parquet")), 0),
}
"""A command that the extra serves, and its exit code."""
IMPORTED = {
    "hub": "huggingface_hub", "torch": "peft", "gpu": "pynvml", "parquet": "pyarrow", "bitsandbytes": "bitsandbytes",
    "diffusers": "diffusers", "timm": "timm", "sentence-transformers": "sentence_transformers", "profile": "msgspec",
    "web": "vramwise.web.server.app", "mcp": "vramwise.web.server.mcp",
    "plot": "cairosvg", "scale": "duckdb",
}  # fmt: skip


def extras() -> list[str]:
    """The extras of pyproject.toml."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


def try_extra(extra: str, wheel: Path, folder: Path) -> str:
    """What is wrong with an environment of this extra alone; empty: nothing."""
    if extra not in ASKED:
        return f"ASKED has no command for the extra {extra}"
    home = folder / extra
    venv.create(home, with_pip=True)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if extra in ("torch", "bitsandbytes", "diffusers", "timm", "sentence-transformers"):
        subprocess.run([*pip, TORCH], check=True)
    subprocess.run([*pip, str(wheel) if extra == PLAIN else f"{wheel}[{extra}]"], check=True)
    arguments, expected = ASKED[extra]
    wrong = _ran([str(python), "-m", "vramwise", *arguments], folder, expected)
    if extra in IMPORTED:
        # OSError: cairosvg without the cairo library, which is the system's
        code = f"try:\n    import {IMPORTED[extra]}\nexcept OSError as missing:\n    print(missing)"
        wrong += _ran([str(python), "-c", code], folder, 0)
    shutil.rmtree(home)
    return wrong


def _ran(command: list[str], folder: Path, expected: int) -> str:
    # nothing of this checkout is on the way: an empty folder, and no PYTHONPATH
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=600
    )  # fmt: skip
    if done.returncode == expected:
        return ""
    return f"{' '.join(command[-6:])}: exit code {done.returncode}, expected {expected}\n{done.stderr[-2000:]}"


def main(asked: list[str]) -> int:
    """Try every extra that is asked for; the exit code."""
    failed = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = sorted(build(folder / "dist"), key=lambda path: path.suffix != ".whl")
        tries = {extra: (lambda extra=extra: try_extra(extra, wheel, folder)) for extra in asked or (PLAIN, *extras())}
        if not asked:
            tries["sdist"] = lambda: try_extra(PLAIN, sdist, folder)
            if uvx := shutil.which("uvx"):
                tries["uvx"] = lambda: _ran([uvx, "--from", str(wheel), "vramwise", *ESTIMATE], folder, 0)
            if pipx := shutil.which("pipx"):
                tries["pipx run"] = lambda: _ran([pipx, "run", "--spec", str(wheel), "vramwise", *ESTIMATE], folder, 0)
        for title, attempt in tries.items():
            try:
                wrong = attempt()
            except subprocess.CalledProcessError as problem:
                wrong = str(problem)
            print(f"{title:<14} {wrong or 'ok'}", flush=True)
            failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
