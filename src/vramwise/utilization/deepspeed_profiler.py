"""DeepSpeed's flops profiler: its configuration written, its text output read, its blind spots named."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vramwise.errors import SourceError
from vramwise.records import record
from vramwise.utilization.throughput import GIGA, TERA

CONFIGURATION: dict[str, object] = {
    "flops_profiler": {
        "enabled": True,
        "profile_step": 1,
        "module_depth": -1,
        "top_modules": 1,
        "detailed": True,
        "output_file": None,
    }
}
"""What to merge into a DeepSpeed configuration: profiles step 1, every depth of modules, to standard output.
(deepspeed/profiling/config.py; the keys are those of its documentation.)"""

BLIND_SPOTS = (
    "it counts torch functions that it wraps in Python: attention inside fused kernels (flash-attn, Transformer "
    "Engine, Triton, xFormers) counts as 0, so that its FLOPS can come out a fraction of what the trainer logs",
    "without wall_clock_breakdown in the configuration only the forward pass has a latency",
    "it counts norms and activations, which MFU leaves out (below 1 %)",
)
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": GIGA, "B": GIGA, "T": TERA, "P": 1e15}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_LINE = re.compile(
    r"(?:\[[^\]]*\] ?)*+[> ]*+([A-Za-z][^:=]*+): ([\d.eE+]{1,40}) ?(?:([kKMGBTP]?)(?:FLOP[Ss]|MACs)?|(us|ms|s))$"
)
LONGEST_LINE = 2048
LARGEST = 1e30
_KEYS = {
    "world size": "world_size",
    "batch size per gpu": "batch_size_per_gpu",
    "params per gpu": "num_parameters_per_gpu",
    "fwd macs per gpu": "forward_macs",
    "fwd flops per gpu": "forward_flops",
    "fwd latency": "forward_s",
    "bwd latency": "backward_s",
    "step latency": "step_s",
    "iter latency": "iteration_s",
    "samples/second": "samples_per_s",
}


@record
class FlopsProfile:
    """The summary that the profiler prints, in plain units; None for what the output lacks."""

    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float | None:
        return self.values.get(name)

    @property
    def tflops_per_gpu(self) -> float | None:
        """TFLOP/s of a whole iteration as the profiler defines it: 3 × forward FLOPs / iteration latency."""
        forward, iteration = self["forward_flops"], self["iteration_s"]
        return 3 * forward / iteration / TERA if forward and iteration else None


def read_flops_profile(text: str) -> FlopsProfile:
    """The profiler's summary out of a log. Raises SourceError when there is none."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        found = _LINE.match(" ".join(line[:LONGEST_LINE].split()))
        if not found:
            continue
        label, number, prefix, seconds = found.groups()
        name = _KEYS.get(label.rstrip().lower())
        if name is None:
            continue
        try:
            value = float(number)
        except ValueError:
            continue
        if not 0 <= value < LARGEST:
            continue
        values.setdefault(name, value * (_SECONDS[seconds] if seconds else _SCALES[prefix or ""]))
    if "forward_flops" not in values and "forward_macs" not in values:
        raise SourceError(
            "no summary of DeepSpeed's flops profiler here: expected lines such as “fwd flops per GPU: …”"
        )
    values.setdefault("forward_flops", 2 * values.get("forward_macs", 0.0))
    return FlopsProfile(values)
