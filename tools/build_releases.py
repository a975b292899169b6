"""Rebuild src/vramwise/releases.csv from the package index that pip uses: python tools/build_releases.py

One row a release: the day its first file was uploaded, and what its wheel asks of the other packages of the table.
Pre-releases and yanked files are left out. A wheel for Linux is asked first, whose pins may differ from another's.
"""

from __future__ import annotations

import csv
import io
import json
import re
import ssl
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pip._internal.models.index import PyPI

TARGET = Path(__file__).resolve().parent.parent / "src" / "vramwise" / "releases.csv"
PACKAGES = (
    "accelerate", "axolotl", "bitsandbytes", "deepspeed", "flash-attn", "flashinfer-python", "liger-kernel",
    "lightning", "litgpt", "llamafactory", "megatron-core", "ms-swift", "nvidia-nccl-cu11", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "peft", "sglang", "torch", "torchao", "torchtitan", "torchtune", "transformers", "triton",
    "trl", "unsloth", "unsloth-zoo", "vllm", "xformers",
)  # fmt: skip
ASKED = (
    "axolotl", "litgpt", "llamafactory", "ms-swift", "peft", "sglang", "torch", "torchtitan", "torchtune", "trl",
    "unsloth", "unsloth-zoo", "vllm", "xformers",
)  # fmt: skip
"""Those whose metadata is read: what they ask for says what runs beside them."""
TRUSTED = ssl.create_default_context()
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "python_version": "3.11",
         "python_full_version": "3.11.9", "os_name": "posix", "implementation_name": "cpython",
         "platform_python_implementation": "CPython", "extra": ""}  # fmt: skip


def fetched(address: str, **headers: str) -> bytes:
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=60, context=TRUSTED) as answer:
        body: bytes = answer.read()
    return body


def version_of(filename: str) -> Version | None:
    try:
        return parse_wheel_filename(filename)[1] if filename.endswith(".whl") else parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def releases(package: str) -> dict[Version, list[dict[str, Any]]]:
    """Files of every release, by version, in ascending order."""
    accept = "application/vnd.pypi.simple.v1+json"
    listing = json.loads(fetched(f"{PyPI.simple_url}/{package}/", Accept=accept))
    found: dict[Version, list[dict[str, Any]]] = {}
    for file in listing["files"]:
        version = version_of(file["filename"])
        if version is not None and not version.is_prerelease and not file["yanked"]:
            found.setdefault(version, []).append(file)
    return dict(sorted(found.items()))


class Remote(io.RawIOBase):
    """A file that is read where it lies, by ranges: of a wheel of 500 MB a few kilobytes."""

    def __init__(self, address: str, size: int) -> None:
        self.address, self.size, self.place = address, size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.size}[whence]
        return self.place

    def readinto(self, buffer: Any) -> int:
        last = min(self.place + len(buffer), self.size) - 1
        if last < self.place:
            return 0
        piece = fetched(self.address, Range=f"bytes={self.place}-{last}")
        buffer[: len(piece)] = piece
        self.place += len(piece)
        return len(piece)


def metadata(wheel: dict[str, Any]) -> str:
    """The METADATA of a wheel that lies on the index."""
    with ZipFile(io.BufferedReader(Remote(wheel["url"], wheel["size"]), 32_768)) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode("utf-8", "replace")


def asked_of_others(files: list[dict[str, Any]]) -> Iterator[str]:
    """Requirements among the table's packages, as "torch==2.9.0"; nothing of releases that have no wheel for Linux."""
    wheels = [file for file in files if re.search(r"(linux.*x86_64|none-any)\.whl$", file["filename"])]
    if not wheels:
        return
    for line in re.findall(r"^Requires-Dist: (.+)$", metadata(wheels[-1]), re.MULTILINE):
        try:
            asked = Requirement(line)
        except InvalidRequirement:
            continue
        name = asked.name.lower().replace("_", "-")
        if name in PACKAGES and asked.specifier and (asked.marker is None or asked.marker.evaluate(LINUX)):
            yield f"{name}{','.join(sorted(str(part) for part in asked.specifier))}"


def row(package: str, version: Version, files: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    day = min(file["upload-time"] for file in files)[:10]
    return package, str(version), day, " ".join(sorted(set(asked_of_others(files)))) if package in ASKED else ""


def main() -> None:
    with ThreadPoolExecutor(8) as workers:
        waiting = [
            workers.submit(row, package, version, files)
            for package in PACKAGES
            for version, files in releases(package).items()
        ]
        rows = [each.result() for each in waiting]
    with open(TARGET, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("package", "version", "day", "asks_for"), *rows])
    print(f"{len(rows)} releases")


if __name__ == "__main__":
    main()
