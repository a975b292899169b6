"""Rows of tests/golden/llama_cpp_reservations.jsonl: what llama.cpp's own graphs and allocator reserve.

    python record.py RESERVATIONS FOLDER [MODEL...] [--backend cuda|vulkan|metal] > rows.jsonl

RESERVATIONS is the program of reservations.cpp, FOLDER has the files of headers.py; without names all of them are
asked. Without a backend devices leave graphs as they are, and nothing but experts lies on the host beside them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

GRID: tuple[dict[str, int], ...] = (
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1},
    {"n_ctx": 32768, "n_ubatch": 2048, "n_seqs": 4, "n_outputs": 4},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 4, "n_outputs": 512, "unified": 0},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "flash": 0},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 512, "devices": 2},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "devices": 0},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "cpu_moe": 1},
)
PARTLY_ON_HOST: tuple[dict[str, int], ...] = (
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "ngl": 8},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "ngl": 8, "flash": 0},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 2, "n_outputs": 2, "ngl": 9, "devices": 2, "unified": 0},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 512, "ngl": 0},
    {"n_ctx": 8192, "n_ubatch": 16, "n_seqs": 1, "n_outputs": 1, "ngl": 8},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "kv_offload": 0},
    {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "kv_offload": 0, "flash": 0},
)
DEFAULTS = {"flash": 1, "unified": 1, "devices": 1, "cpu_moe": 0, "kv_offload": 1}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", choices=("cuda", "vulkan", "metal"))
    parser.add_argument("names", nargs="*")
    asked = parser.parse_intermixed_args()
    for path in sorted(asked.folder.glob("*.gguf")):
        name = path.stem.replace("--", "/", 1)
        if not asked.names or name in asked.names:
            for row in rows(asked.program, path, name, asked.backend):
                print(json.dumps(row))


def rows(program: str, path: Path, name: str, backend: str | None) -> Iterator[dict[str, object]]:
    """A row for each of the settings; none where llama.cpp does not load the file."""
    for sizes in GRID + (PARTLY_ON_HOST if backend else ()):
        settings = {**sizes, **({"backend": backend} if backend else {})}
        line = " ".join([str(path), *(f"{key}={value}" for key, value in settings.items())])
        done = subprocess.run([program], input=line + "\n", capture_output=True, text=True, check=False)
        found: dict[str, list[int]] = json.loads(done.stdout or "{}")
        if not found:
            print(f"{name}: {done.stderr.strip()[:200]}", file=sys.stderr)
            return
        devices = [found[key][2] for key in sorted(found) if key.startswith("GPU")]
        cache = sum(sizes[1] for sizes in found.values())
        yield {"model": name, **DEFAULTS, **settings, "compute": devices, "host": found["CPU"][2], "cache": cache}


if __name__ == "__main__":
    main()
