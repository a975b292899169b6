"""The host's memory: arrays, pinned and shared memory, and processes that were killed.

| who | wording |
|---|---|
| NumPy | Unable to allocate A for an array |
| ggml, TensorFlow | failed to allocate A of pinned memory; could not allocate pinned host memory of size: N |
| DataLoader | bus error … insufficient shared memory (shm); NCCL: Error while creating shared memory segment |
| kernel | Out of memory: Killed process P (NAME) … anon-rss:NkB |
| Kubernetes, Docker, Slurm | OOMKilled; exit code 137; oom_kill event |
| torchrun, DeepSpeed, accelerate | exitcode: -9; exits with return code = -9; died with <Signals.SIGKILL: 9> |
| transformers | Some modules are dispatched on the CPU or the disk |
"""

from __future__ import annotations

import re
from typing import Final

from vramwise.measure.messages.message import (
    SIZE,
    OomMessage,
    Reading,
    Wording,
    bytes_of,
    last_size_found,
    size_found,
    whole_found,
)

_LESS: Final = (
    "less on the host: fewer copies of the checkpoint (safetensors, low_cpu_mem_usage), fewer DataLoader workers, less "
    "offloading"
)
_LIMIT: Final = "a larger limit (docker --memory, resources.limits.memory, Slurm's --mem), or a machine with more RAM"
_CHANGES: Final = ((_LESS, "some speed"), (_LIMIT, "more memory for the job"))


def no_room_for_one(what: str) -> str:
    """The cause where the host's allocator refused."""
    return (
        f"the host had no memory for one {what}: the machine's is in use, or a limit ends below it (container, "
        "ulimit -v, Slurm's --mem)"
    )


def _numpy(reading: Reading) -> OomMessage:
    text = reading.after(200)
    return OomMessage(
        "NumPy",
        "CPU",
        reading.position,
        tried=size_found(r"Unable to allocate " + SIZE, text),
        text=text,
        memory="host",
        cause=no_room_for_one("array"),
        changes=(
            ("the array in pieces, in fewer bits, or as a memory map (np.memmap)", "some speed"),
            (_LIMIT, "more memory"),
        ),
    )


def pinned(reading: Reading) -> OomMessage:
    """Host memory that the GPU reads by itself; CUDA calls a failure of it out of memory too."""
    line = re.sub(r"([0-9]),([0-9]{2} )", r"\1.\2", reading.line)
    tried = size_found(r"failed to allocate " + SIZE, line) or whole_found(
        r"(?:memory of size: |failed to alloc )([0-9]{1,18})", line
    )
    is_ggml = "ggml" in line
    program = "llama.cpp" if is_ggml else "TensorFlow" if "tensorflow" in line else "CUDA"
    goes_on = "; llama.cpp goes on with pageable memory" if is_ggml else ""
    off = "GGML_CUDA_NO_PINNED=1" if is_ggml else "pin_memory=False"
    return OomMessage(
        program,
        "",
        reading.position,
        None if program == "TensorFlow" else tried,
        text=line[:300],
        memory="pinned host",
        cause="the driver could not pin host memory: the machine has too little free, or a limit is reached (WSL, "
        f"ulimit -l, container){goes_on}",
        changes=(
            (f"no pinned memory ({off}), or less of it", "slower copies"),
            (f"ulimit -l unlimited; {_LIMIT}", "none"),
        ),
        is_vague=True,
    )


def _shared(reading: Reading) -> OomMessage:
    text = reading.around(200, 400)
    return OomMessage(
        "NCCL" if "nccl" in text.lower() else "DataLoader",
        "",
        reading.position,
        whole_found(r"\(size ([0-9]{1,18})\)", text),
        text=reading.after(300),
        memory="shared",
        cause="/dev/shm is full, through which processes hand tensors to one another; Docker gives it 64 MiB unless "
        "told otherwise",
        changes=(
            (
                "docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir with medium Memory on /dev/shm",
                "none",
            ),
            (
                "fewer DataLoader workers (num_workers), or torch.multiprocessing.set_sharing_strategy('file_system')",
                "some speed",
            ),
        ),
    )


def _killed_by_kernel(reading: Reading) -> OomMessage:
    line = reading.line
    who = re.search(r"Killed process ([0-9]{1,10}),? \(([^()\n]{1,64})\)", line)
    sizes = [bytes_of(size, "KiB") for size in re.findall(r"(?:anon|shmem)-rss:([0-9]{1,15})kB", line)]
    in_group = "cgroup" in reading.around(40, 0) or "oom-kill:constraint=CONSTRAINT_MEMCG" in reading.line
    ended = f"process {who.group(1)} ({who.group(2)})" if who else "a process"
    whose = "its container's or job's limit is reached" if in_group else "the machine has no memory left"
    return OomMessage(
        "Linux",
        "",
        reading.position,
        text=line[:400],
        memory="host",
        held=((ended, sum(sizes)),) if sizes else (),
        cause=f"the kernel killed {ended}: {whose}. This is host memory, not the GPU's",
        changes=_CHANGES,
    )


def _killed_in_container(reading: Reading) -> OomMessage:
    return OomMessage(
        "container",
        "",
        reading.position,
        text=reading.around(200, 200),
        memory="host",
        cause="the kernel killed the program at the memory limit of its container or job: host memory, not the GPU's",
        changes=_CHANGES[::-1],
    )


def _killed(reading: Reading) -> OomMessage:
    used = last_size_found(r"CPU Virtual Memory: {1,4}used = " + SIZE, reading.before)
    return OomMessage(
        "process",
        "",
        reading.position,
        text=reading.line[:300],
        memory="host",
        is_probable=True,
        held=(("host, before the end", used),) if used is not None else (),
        cause="a process was killed (signal 9), which is what the kernel does when host memory runs out; the log does "
        "not say by whom: dmesg does (Out of memory: Killed process)",
        changes=_CHANGES,
        is_vague=True,
    )


def _dispatched(reading: Reading) -> OomMessage:
    return OomMessage(
        "transformers",
        "",
        reading.position,
        text=reading.after(300),
        cause="the quantized model does not fit into what device_map may use of the cards (max_memory, what is free), "
        "so that some of it would lie on the CPU, where it cannot be quantized",
        changes=(
            (
                "end the other programs on the card, more cards, or a smaller format (4-bit instead of 8-bit)",
                "some quality",
            ),
            ("llm_int8_enable_fp32_cpu_offload=True: what does not fit stays on the CPU in 32 bit", "much slower"),
        ),
    )


WORDINGS: Final = (
    Wording("numpy", ("Unable to allocate ",), r"Unable to allocate [0-9.]{1,20} [KMGT]iB for an array", _numpy),
)
WEAK: Final = (
    Wording(
        "pinned",
        (" of pinned memory", "could not allocate pinned host memory"),
        r"failed to allocate [0-9.,]{1,20} MiB of pinned memory|could not allocate pinned host memory",
        pinned,
    ),
    Wording(
        "shared",
        ("shared memory", "Bus error", "unable to write to file </torch_"),
        r"insufficient shared memory \(shm\)|killed by signal: Bus error|workers are out of shared memory"
        r"|creating shared memory segment /dev/shm|unable to write to file </torch_",
        _shared,
    ),
    Wording(
        "kernel",
        ("ut of memory: Kill", "oom-kill:constraint="),
        r"[Oo]ut of memory: Kill(?:ed)? process [0-9]|oom-kill:constraint=",
        _killed_by_kernel,
    ),
    Wording(
        "container",
        ("OOMKilled", "kill event", "OOM Killed", "node running low on memory"),
        r"\bOOMKilled\b|oom[_-]kill event|\bOOM Killed\b|node running low on memory",
        _killed_in_container,
    ),
    Wording(
        "killed",
        ("exitcode", "return code = -9", "SIGKILL", "xit"),
        r"exitcode {0,8}: -9\b|return code = -9\b|SIGKILL|[Ee]xit(?:ed with)? [Cc]ode:? {0,20}137\b"
        r"|exit status:? 137\b",
        _killed,
    ),
    Wording(
        "dispatched",
        ("Some modules are dispatched on the CPU",),
        r"Some modules are dispatched on the CPU",
        _dispatched,
    ),
)
"""A run may go on after the first; of the others most say that a process ended, and in a log nothing failed of it."""
