"""A Python that has torch and transformers imported already, and a fork of it for what is to run.

A fork does what `python -P -m MODULE …` or `python FILE …` does, without the ten seconds of CPU that importing takes.
`python warm_python.py SOCKET FD` is the process that forks; `WarmPython` starts it and has a `Popen` for who asks it.
What a process does before it imports these, and with packages that are there or not, only one of its own shows.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

QUIET = {
    "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
}  # fmt: skip
"""What a dry run's own process has when it imports (dryrun/launch.py, dryrun/command.py)."""

LOOKS_EVERY_S = 5


class WarmPython:
    """The process that forks, started when something is first asked of it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.address = str(Path(self.folder.name) / "socket")
        self.process: subprocess.Popen[bytes] | None = None

    def connected(self) -> socket.socket:
        if self.process is None:
            reads, writes = os.pipe()
            words = [sys.executable, "-P", __file__, self.address, str(writes)]
            said = Path(self.folder.name) / "said"  # of imports: in no output that a test looks at
            with said.open("w") as out:
                self.process = subprocess.Popen(
                    words,
                    env={**os.environ, **QUIET},
                    pass_fds=[writes],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )
            os.close(writes)
            with os.fdopen(reads) as ready:
                assert ready.read() == "ready", said.read_text("utf-8")[-2000:]
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        return connection

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def popen(self, words: Sequence[str], **kwargs: Any) -> Any:
        """`subprocess.Popen`, in a fork where the words are of this Python."""
        if words[0] == sys.executable and (words[1].endswith(".py") or list(words[1:3]) == ["-P", "-m"]):
            return Forked(self.connected(), words, **kwargs)
        return subprocess.Popen(words, **kwargs)

    def run(self, words: Sequence[str], given: str = "", **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """`subprocess.run` of what ends by itself, with what it printed as text."""
        with tempfile.TemporaryFile("w+") as stdin, tempfile.TemporaryFile("w+", errors="replace") as said:
            stdin.write(given)
            stdin.seek(0)
            process = self.popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=said, text=True, **kwargs)
            out, _ = process.communicate()
            process.stdout.close()
            said.seek(0)
            return subprocess.CompletedProcess(words, process.returncode, out, said.read())


class Forked:
    """As much of a `Popen` as is used of one."""

    def __init__(
        self, connection: socket.socket, words: Sequence[str], *, env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None, stdin: Any = None, stdout: Any = None, stderr: Any = None,
        text: bool = True, start_new_session: bool = True,
    ) -> None:  # fmt: skip
        assert text
        self.args, self.connection, self.returncode = words, connection, None
        self.stdout = None
        reads, writes = os.pipe()
        with open(os.devnull, "rb") as nothing:
            is_read = stdout == subprocess.PIPE
            reads_from = nothing if stdin in (None, subprocess.DEVNULL) else stdin
            streams = [reads_from.fileno(), writes if is_read else _number(stdout, 1), _number(stderr, 2)]
            asked = {"words": list(words[1:]), "env": dict(env or os.environ), "cwd": os.fspath(cwd or os.getcwd())}
            message = json.dumps(asked).encode()
            socket.send_fds(connection, [len(message).to_bytes(8, "big")], streams)
            connection.sendall(message)
        os.close(writes)
        if is_read:
            self.stdout = os.fdopen(reads, encoding="utf-8")
        else:
            os.close(reads)
        self.pid = self._told(None)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._told(timeout)
            self.connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        found: list[str] = []
        reading = threading.Thread(target=lambda: found.append(self.stdout.read()), daemon=True)
        reading.start()
        reading.join(timeout)
        if reading.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait()
        return found[0], None

    def _told(self, timeout: float | None) -> int:
        """The next number that the other side sends: a process's, then what it ended with."""
        if not select.select([self.connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        said = self.connection.recv(8, socket.MSG_WAITALL)
        assert len(said) == 8, "the warm Python is gone"
        return int.from_bytes(said, "big", signed=True)


def _number(stream: Any, own: int) -> int:
    return own if stream is None else int(stream.fileno())


def serve(address: str, ready: int) -> None:
    """Fork for whoever connects: a process that waits for the one that runs, and tells how it ended.

    It ends with the process that started it, however that one ended.
    """
    parent = os.getppid()
    _import()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(ready, b"ready")
        os.close(ready)
        while os.getppid() == parent:
            if not select.select([listening], [], [], LOOKS_EVERY_S)[0]:
                continue
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                _follow(connection)
            connection.close()


def _import() -> None:
    """What dry runs import. Nothing is asked of it: what they ask first, they ask themselves."""
    import peft  # noqa: F401
    import torch._functorch.aot_autograd
    import torch._inductor.decomposition  # noqa: F401
    import transformers.models.llama.modeling_llama
    import transformers.trainer  # noqa: F401

    import vramwise.dryrun.script
    import vramwise.dryrun.worker
    import vramwise.measure.worker  # noqa: F401


def _follow(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    asked = json.loads(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
    os.setpgid(0, 0)
    child = os.fork()
    if not child:
        connection.close()
        os.setsid()
        _become(asked, streams)
    connection.sendall(child.to_bytes(8, "big", signed=True))
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))
    os._exit(0)


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """Run what was asked for as a Python of its own would, to its end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    own = [part for part in asked["env"].get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:0] = [part for part in own if part not in sys.path]
    code: Any = 0
    try:
        _run(asked["words"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int | None) else 1
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


def _run(words: list[str]) -> None:
    if words[:2] == ["-P", "-m"]:
        module, sys.argv = words[2], [words[2], *words[3:]]
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
