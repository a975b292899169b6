"""A training moment sorted as the literature sorts it: model states (explicit) and everything else (implicit).

ZeRO (Rajbhandari et al., 2020, section 3) calls them model states and residual states; PyTorch's profiler and articles
use the six kinds below.
"""

from __future__ import annotations

from vramwise.cli.screens.paint import wrapped, wrapped_text
from vramwise.result import Node, Result
from vramwise.units import gib

EXPLICIT = ("weights", "gradients", "optimizer states")
IMPLICIT = ("saved activations", "temporary buffers", "fragmentation")
OUTSIDE = "functionality-specific"
LEAST_SHOWN_GIB = 0.01

_KIND_OF_TERM = {
    "weights": "weights",
    "adapters": "weights",
    "gradients": "gradients",
    "optimizer states": "optimizer states",
    "master weights": "optimizer states",
    "activations": "saved activations",
    "inputs": "saved activations",
    "logits and loss": "saved activations",
    "CUDA context": OUTSIDE,
    "library workspace": OUTSIDE,
    "NCCL": OUTSIDE,
    "rollout engine": OUTSIDE,
}


def breakdown(moment: Node) -> dict[str, int]:
    """Bytes of a moment by kind; what is neither state, activation nor outside of tensors is a temporary buffer."""
    found = dict.fromkeys((*EXPLICIT, *IMPLICIT[:2], OUTSIDE), 0)
    for term in moment.children:
        found[_KIND_OF_TERM.get(term.name, "temporary buffers")] += term.bytes
    return found


def fragmentation_bytes(result: Result) -> int:
    """Memory that the allocator holds beyond what tensors take at the peak."""
    allocated, reserved = (result.quantities.get(name) for name in ("peak_allocated", "peak_reserved"))
    return max(0, int(reserved.expected - allocated.expected)) if allocated and reserved else 0


def gradients_later(result: Result, at_peak: int) -> str:
    """What gradients weigh at their own moment, where the peak is another and holds less of them; else empty."""
    most, moment = max(((breakdown(phase.components)["gradients"], phase.name) for phase in result.phases),
                       key=lambda pair: pair[0])  # fmt: skip
    return f" ({gib(most):,.2f} at {moment})" if gib(most) >= gib(at_peak) + LEAST_SHOWN_GIB else ""


def breakdown_lines(result: Result, width: int) -> list[str]:
    """The kinds of the peak moment: explicit, implicit, functionality-specific."""
    peak = next((phase for phase in result.phases if phase.name == result.peak_phase), None)
    if peak is None or result.scenario.get("task") != "train" or "peak_allocated" not in result.quantities:
        return []
    kinds = breakdown(peak.components) | {"fragmentation": fragmentation_bytes(result)}
    lines: list[str] = []
    for label, names in (("explicit", EXPLICIT), ("implicit", IMPLICIT)):
        total = sum(kinds[name] for name in names)
        later = {"gradients": gradients_later(result, kinds["gradients"])}
        each = (f"{name} {gib(kinds[name]):,.2f}{later.get(name, '')}" for name in names)
        pieces = [f"{label:<12}{gib(total):,.2f}:", *each]
        lines += wrapped(pieces, width, indent=12)
    terms = [term.name for term in peak.components.children if _KIND_OF_TERM.get(term.name) == OUTSIDE]
    said = f"{gib(kinds[OUTSIDE]):,.2f}:   {OUTSIDE} ({', '.join(terms)})"
    return [
        *lines,
        *(wrapped_text(f"{'other':<12}", said, width) if len(said) + 12 > width else [f"{'other':<12}{said}"]),
    ]
