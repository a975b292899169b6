"""A process that answers strangers' questions opens no file of this machine but those it needs and was allowed.

Two layers: paths that name a model are refused before anybody looks whether they exist (`files.stay_within`), and a
hook of the interpreter (PEP 578) refuses every other opening outside of the program, its caches and the allowed
folders, whatever a question made a reader try.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence

from vramwise.errors import VramwiseError
from vramwise.files import read_at_most, stay_within
from vramwise.web.answers.measured import PLACES

_SYSTEM = (
    "/dev/null", "/dev/urandom", "/dev/random", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/hosts",
    "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/localtime", "/etc/mime.types", "/usr/share/zoneinfo", "/sys",
    "/usr/lib/ssl", "/usr/share/ca-certificates", "/proc/meminfo", "/proc/cpuinfo", "/proc/version", "/proc/net/dev",
    "/proc/driver/nvidia", "/proc/self/maps", "/proc/self/status", "/proc/self/cgroup", "/proc/self/mountinfo",
)  # fmt: skip
"""What the interpreter, TLS and the question which card is here read; nothing of a person."""


_LONGEST_TOKEN = 4096


def confine(allowed: Sequence[str]) -> None:
    """From now on this process opens nothing but its own files, its caches and what lies in `allowed`."""
    stay_within(allowed)
    _take_token()
    roots = tuple(sorted({os.path.realpath(one) for one in (*_SYSTEM, *_program(), *_caches(), *allowed)}))

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("open", "os.listdir", "os.scandir"):
            return
        path = arguments[0] if arguments else None
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str | os.PathLike):  # a descriptor that is open already
            return
        real = os.path.realpath(path)
        if not any(real == root or real.startswith(root + os.sep) for root in roots):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))

    sys.addaudithook(refuse)


def _take_token() -> None:
    """The hub's token into the environment, because its file is closed from now on; none where there is none."""
    if os.environ.get("HF_TOKEN"):
        return
    path = os.environ.get("HF_TOKEN_PATH") or os.path.join(_hub_home(), "token")
    try:
        token = read_at_most(path, _LONGEST_TOKEN).decode("ascii", "ignore").strip()
    except VramwiseError:
        token = ""
    if token:
        os.environ["HF_TOKEN"] = token
    else:
        os.environ["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"


def _hub_home() -> str:
    return os.environ.get("HF_HOME") or os.path.join(_cache_home(), "huggingface")


def _cache_home() -> str:
    return os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")


def _program() -> Iterable[str]:
    """Where modules are loaded from, and where temporary files stand."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    yield from (own, sys.prefix, sys.base_prefix, sys.exec_prefix, tempfile.gettempdir())
    yield from (one for one in sys.path if one)
    yield from map(str, PLACES)


def _caches() -> Iterable[str]:
    """Descriptions that hubs' clients and this program keep, and what was learned on this machine; no token."""
    cache = _cache_home()
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    yield os.environ.get("HF_HUB_CACHE") or os.path.join(_hub_home(), "hub")
    yield os.environ.get("MODELSCOPE_CACHE") or os.path.join(cache, "modelscope")
    yield os.environ.get("VRAMWISE_CACHE") or os.path.join(cache, "vramwise")
    yield os.path.join(config, "vramwise")
    if own := os.environ.get("VRAMWISE_SITE"):
        yield own
