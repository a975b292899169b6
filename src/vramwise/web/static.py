"""The page as a folder for any web server: the program runs in the browser itself, under Pyodide.

The runtime is the npm package `pyodide` of one version, held against its hash, or a folder that somebody else fetched.
The program is a zip of this package as it is installed, without what a browser cannot use.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from vramwise import __version__
from vramwise.errors import SourceError, UsageError, clipped
from vramwise.files import shown_path, write_file
from vramwise.records import record

RUNTIME = "pyodide@0.29.3"
RUNTIME_SHA512 = "22UBuhOJawj7vKUnS7/F3xK+515LJdjiMAHoCfuS6/PbHiOrSQVnYwDe+2sbVwiOZ3sMMexdXICew6NqOMQGgA=="
RUNTIME_FILES = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
LARGEST_RUNTIME_BYTES = 64 << 20
FETCH_S = 300
PACKAGE = "vramwise.zip"
BACK_END = "back-end.json"
START = "start.json"
"""What a page shows while its program starts: the keys of the form, and the answer to the first question."""
_HOME = Path(__file__).parents[1]
PAGE = _HOME / "web" / "page"
_LEFT_OUT = ("web/page/", "web/server/", "measure/worker", "watching/")
"""Parts of the package that a browser cannot run, by the beginnings of their paths."""
_OLDEST = (1980, 1, 1, 0, 0, 0)
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


def write_static(target: str, runtime: str | None = None) -> Written:
    """Write the folder; `runtime`: where Pyodide's files lie. Raises UsageError or SourceError."""
    if not PAGE.is_dir():
        raise UsageError("this installation has no page: web/page is missing in the package")
    if os.path.lexists(target) and not (os.path.isdir(target) and _is_ours_or_empty(target)):
        raise UsageError(f"--static: {shown_path(target)} is there and is not empty: give a new folder")
    files = dict(_runtime_in(runtime) if runtime is not None else _runtime_of_npm())
    content: dict[str, bytes] = {f"pyodide/{name}": data for name, data in files.items()}
    content |= dict(_page())
    content[PACKAGE] = package_zip()
    content[START] = json.dumps(_start()).encode() + b"\n"
    content[BACK_END] = json.dumps(_back_end(content[PACKAGE]), indent=1).encode() + b"\n"
    for name, data in content.items():
        place = os.path.join(target, *name.split("/"))
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
        except OSError as problem:
            raise SourceError(f"{shown_path(target)}: cannot be written ({problem.strerror or problem})") from None
        write_file(place, data)
    return Written(len(content), sum(map(len, content.values())))


def _is_ours_or_empty(target: str) -> bool:
    return not os.listdir(target) or os.path.isfile(os.path.join(target, BACK_END))


def _back_end(package: bytes) -> Mapping[str, object]:
    """What the page reads to know that a worker of its own answers it."""
    return {
        "kind": "browser", "version": __version__, "worker": "worker.js", "runtime": "pyodide/", "package": PACKAGE,
        "package_sha256": hashlib.sha256(package).hexdigest(), "start": START,
    }  # fmt: skip


def _start() -> Mapping[str, object]:
    """Worked out here once, so that nobody looks at an empty page while Python starts; of no machine's calibration."""
    from vramwise.estimation import estimate
    from vramwise.web.api import answer

    known = answer("keys", {})
    return {"keys": known, "result": estimate(known["first"], site=None).to_dict()}


def _page() -> Iterator[tuple[str, bytes]]:
    for path in sorted(PAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name, data = path.relative_to(PAGE).as_posix(), path.read_bytes()
            yield name, _with_policy(data) if name.endswith(".html") else data


def _with_policy(page: bytes) -> bytes:
    """A page that carries its policy: a folder on somebody's web server has no headers of ours."""
    meta = f'{_HEAD}\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return page.replace(_HEAD.encode(), meta.encode(), 1)


def package_zip() -> bytes:
    """This package as a zip that is the same byte for byte wherever it is made."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(_HOME.rglob("*")):
            name = path.relative_to(_HOME).as_posix()
            if path.is_file() and "__pycache__" not in path.parts and not name.startswith(_LEFT_OUT):
                info = zipfile.ZipInfo(f"vramwise/{name}", _OLDEST)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(info, path.read_bytes())
        for path in _cases():
            info = zipfile.ZipInfo(f"vramwise/web/cases/{path.name}", _OLDEST)
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
        for path in _yaml():
            archive.writestr(zipfile.ZipInfo(f"yaml/{path.name}", _OLDEST), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


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
