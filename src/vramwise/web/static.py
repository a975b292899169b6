"""The page as a folder for any web server: the program runs in the browser itself, under Pyodide.

The runtime is the npm package `pyodide` of one version, held against its hash, or a folder that somebody else fetched.
The program is an archive of this package as it is installed, without what a browser cannot use, and an image of
Python's memory with the program started in it (`image.py`).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vramwise import __version__
from vramwise.errors import SourceError, UsageError, clipped
from vramwise.files import shown_path, write_file
from vramwise.records import record
from vramwise.web.image import memory_image

RUNTIME = "pyodide@0.29.3"
RUNTIME_SHA512 = "22UBuhOJawj7vKUnS7/F3xK+515LJdjiMAHoCfuS6/PbHiOrSQVnYwDe+2sbVwiOZ3sMMexdXICew6NqOMQGgA=="
RUNTIME_FILES = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
LARGEST_RUNTIME_BYTES = 64 << 20
FETCH_S = 300
PACKAGE = "vramwise.tar.gz"
IMAGE = "started.image"
BACK_END = "back-end.json"
START = "start.json"
"""What a page shows while its program starts: the keys of the form, and the answer to the first question."""
_HOME = Path(__file__).parents[1]
PAGE = _HOME / "web" / "page"
_LEFT_OUT = ("web/page/", "web/server/", "web/image.", "measure/worker", "watching/")
"""Parts of the package that a browser cannot run, by the beginnings of their paths."""
HUB = "https://huggingface.co https://*.huggingface.co https://*.hf.co"
POLICY = (
    f"default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' {HUB}; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'"
)
_HEAD = "<head>"


@record
class Written:
    files: int
    bytes: int
    no_image: str
    """Why a page has no memory image to start from; empty where it has one."""


def write_static(target: str, runtime: str | None = None) -> Written:
    """Write the folder; `runtime`: where Pyodide's files lie. Raises UsageError or SourceError."""
    if not PAGE.is_dir():
        raise UsageError("this installation has no page: web/page is missing in the package")
    if os.path.lexists(target) and not (os.path.isdir(target) and _is_ours_or_empty(target)):
        raise UsageError(f"--static: {shown_path(target)} is there and is not empty: give a new folder")
    files = dict(_runtime_in(runtime) if runtime is not None else _runtime_of_npm())
    start, package = _start(), package_archive()
    image = memory_image(files, package, _questions(start["keys"]["first"]))
    content: dict[str, bytes] = {f"pyodide/{name}": data for name, data in files.items()}
    content |= dict(_page())
    content[PACKAGE], content[START] = package, json.dumps(start).encode() + b"\n"
    if image.content:
        content[IMAGE] = image.content
    content[BACK_END] = json.dumps(_back_end(package, image.content), indent=1).encode() + b"\n"
    for name, data in content.items():
        place = os.path.join(target, *name.split("/"))
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
        except OSError as problem:
            raise SourceError(f"{shown_path(target)}: cannot be written ({problem.strerror or problem})") from None
        write_file(place, data)
    return Written(len(content), sum(map(len, content.values())), image.why_not)


def _is_ours_or_empty(target: str) -> bool:
    return not os.listdir(target) or os.path.isfile(os.path.join(target, BACK_END))


def _back_end(package: bytes, image: bytes) -> Mapping[str, object]:
    """What the page reads to know that a worker of its own answers it."""
    return {
        "kind": "browser", "version": __version__, "worker": "worker.js", "runtime": "pyodide/", "start": START,
        "package": _described(PACKAGE, package), "image": _described(IMAGE, image) if image else None,
    }  # fmt: skip


def _described(name: str, compressed: bytes) -> Mapping[str, object]:
    """A compressed file, by its hash, and the bytes that it holds."""
    sha256, content = hashlib.sha256(compressed).hexdigest(), gzip.decompress(compressed)
    return {"file": name, "sha256": sha256, "bytes": len(content)}


def _start() -> Mapping[str, Any]:
    """Worked out here once, so that nobody looks at an empty page while Python starts; of no machine's calibration."""
    from vramwise.estimation import estimate
    from vramwise.web.api import answer

    known = answer("keys", {})
    return {"keys": known, "result": estimate(known["first"], site=None).to_dict()}


def _questions(first: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """What is answered before the image is made: so much has been imported, read and recorded when a page starts."""
    tasks = [{"task": "serve"}, {"task": "train"}]
    return [("result", {**{key: first[key] for key in ("model", "gpu")}, **task}) for task in tasks]


def _page() -> Iterator[tuple[str, bytes]]:
    for path in sorted(PAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name, data = path.relative_to(PAGE).as_posix(), path.read_bytes()
            yield name, _with_policy(data) if name.endswith(".html") else data


def _with_policy(page: bytes) -> bytes:
    """A page that carries its policy: a folder on somebody's web server has no headers of ours."""
    meta = f'{_HEAD}\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return page.replace(_HEAD.encode(), meta.encode(), 1)


def package_archive() -> bytes:
    """This package as a compressed tar archive that is the same byte for byte wherever it is made."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path in _files_of_package():
            info, content = tarfile.TarInfo(name), path.read_bytes()
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), 9, mtime=0)


def _files_of_package() -> Iterator[tuple[str, Path]]:
    for path in sorted(_HOME.rglob("*")):
        name = path.relative_to(_HOME).as_posix()
        if path.is_file() and "__pycache__" not in path.parts and not name.startswith(_LEFT_OUT):
            yield f"vramwise/{name}", path
    for path in _cases():
        yield f"vramwise/web/cases/{path.name}", path
    for path in _yaml():
        yield f"yaml/{path.name}", path


def _cases() -> list[Path]:
    """The measured cases where they lie beside the package, in a checkout."""
    return (
        []
        if (_HOME / "web" / "cases").is_dir()
        else sorted((_HOME.parents[1] / "benchmarks" / "cases").glob("*.jsonl"))
    )


def _yaml() -> list[Path]:
    """PyYAML's modules in Python, which a tool's YAML is read with; its licence is MIT's."""
    spec = find_spec("yaml")
    folders = spec.submodule_search_locations if spec is not None else None
    return sorted(Path(folders[0]).glob("*.py")) if folders else []


def _runtime_in(folder: str) -> Iterator[tuple[str, bytes]]:
    for name in RUNTIME_FILES:
        try:
            yield name, Path(folder, name).read_bytes()
        except OSError as problem:
            why = f"{name}: {problem.strerror or problem}"
            raise SourceError(f"--runtime: {shown_path(folder)} is no Pyodide: {why}") from None


def _runtime_of_npm() -> Iterator[tuple[str, bytes]]:
    """Raises UsageError without npm, SourceError for what is not the version whose hash is known."""
    npm = shutil.which("npm")
    where = f"--runtime FOLDER takes the files of {RUNTIME} from a folder"
    if npm is None:
        raise UsageError(f"the runtime is fetched by npm, which is not here; {where}")
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        try:
            done = subprocess.run(
                [npm, "pack", RUNTIME, "--pack-destination", folder], capture_output=True, text=True, timeout=FETCH_S,
                check=False, cwd=folder, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise SourceError(f"npm pack {RUNTIME}: {clipped(str(problem), 200)}; {where}") from None
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            why = clipped(done.stderr.strip().rpartition("\n")[2], 200)
            raise SourceError(f"npm pack {RUNTIME} did not work ({why}); {where}")
        content = archives[0].read_bytes()
    yield from runtime_in_archive(content)


def runtime_in_archive(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The runtime's files out of npm's archive. Raises SourceError where its hash is another one."""
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != RUNTIME_SHA512:
        raise SourceError(f"{RUNTIME}: what npm gave is not what it was (SHA-512 differs); nothing was written")
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for name in RUNTIME_FILES:
            member = archive.extractfile(f"package/{name}")
            if member is None:
                raise SourceError(f"{RUNTIME}: has no {name}")
            yield name, member.read(LARGEST_RUNTIME_BYTES)
