"""The screen of `vramwise doctor`: GPUs first, then links, network, host, software, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.units import counted, format_bytes

Answer = Mapping[str, Any]
_SHOWN_WARNINGS = 4


def doctor_lines(answer: Answer) -> list[Line]:
    """All parts that have something to say."""
    lines: list[Line] = [[(str(answer["of"]), "bold")]]
    driver = " · ".join(
        f"{name} {answer[key]}" for name, key in (("driver", "driver"), ("CUDA up to", "cuda")) if answer[key]
    )
    lines += [f"{driver}   (by {answer['source']})"] if driver else []
    for part in (_gpus(answer["gpus"]), _links(answer), _nccl(answer["nccl"]),
                 _counters(answer["counters"]), _network(answer["network"]), _host(answer["host"]),
                 _software(answer), _conflicts(answer), _notes(answer["notes"])):  # fmt: skip
        if part:
            lines += ["", *part]
    return lines


def gpu_lines(gpus: Sequence[Answer]) -> list[Line]:
    """The GPUs alone."""
    return _gpus(gpus)


def _gpus(gpus: Sequence[Answer]) -> list[Line]:
    if not gpus:
        return []
    rows: list[tuple[str, ...]] = [
        ("GPU", "name", "total", "used", "free", "kernel resident", "PCIe", "NVLinks up", "ECC", "MIG")
    ]
    for gpu in gpus:
        use = "–" if gpu["utilization_pct"] is None else f"{gpu['utilization_pct']} % of time"
        links = "–" if gpu["nvlinks_up"] is None else str(gpu["nvlinks_up"])
        memory = (_size(gpu[f"{key}_bytes"]) for key in ("total", "used", "free"))
        rows.append(
            (str(gpu["index"]), gpu["name"], *memory, use, _pcie(gpu), links, gpu["ecc"] or "–", gpu["mig"] or "–")
        )
    lines: list[Line] = list(columns(rows, numbers_from=2, gap=2))
    for gpu in gpus:
        lines += [f"  {gpu['index']}: {text}" for text in _about(gpu)]
    if any(gpu["utilization_pct"] is not None for gpu in gpus):
        lines.append(
            "  kernel resident: the driver's “utilization”, time with any kernel on it; not MFU (vramwise mfu)"
        )
    return lines


def _about(gpu: Answer) -> list[str]:
    said = []
    card = gpu["catalog"]
    if card is not None:
        words = {"yes": "yes", "no": "no", "partial": "in part", "unknown": "?"}
        kinds = [("bf16", "bf16"), ("fp8", "fp8")]
        kinds += [(f"flash-attention {version}", f"flash_attention_{version}") for version in (1, 2, 3)]
        support = ", ".join(f"{name} {words.get(card[key], '?')}" for name, key in kinds)
        rate = f"; {card['bf16_tflops']:g} TFLOPS bf16 dense" if card["bf16_tflops"] else ""
        said.append(f"{card['id']}, {_architecture(card)}: {support}{rate}")
    if gpu["catalog_note"]:
        said.append(gpu["catalog_note"])
    said += [f"process {one['pid']} {one['name']}: {_size(one['used_bytes'])}" for one in gpu["processes"]]
    said += [f"{one['name']}: {_size(one['free_bytes'])} of {_size(one['total_bytes'])} free" for one in gpu["slices"]]
    if _less(gpu, "pcie_width"):
        said.append(f"PCIe has {gpu['pcie_width']} of {gpu['pcie_width_max']} lanes: check the slot or riser")
    if _less(gpu, "pcie_generation"):
        rates = f"generation {gpu['pcie_generation']} of {gpu['pcie_generation_max']}"
        said.append(f"PCIe runs at {rates}: usual while idle; if it stays so under load, check slot and firmware")
    return said


def _architecture(card: Answer) -> str:
    named = str(card["compute_capability"])
    return named if named.startswith("gfx") else f"compute capability {named}"


def _less(gpu: Answer, what: str) -> bool:
    return bool(gpu[what] and gpu[f"{what}_max"] and gpu[what] < gpu[f"{what}_max"])


def _pcie(gpu: Answer) -> str:
    """What it is now over what it can be."""
    if not gpu["pcie_generation"] and not gpu["pcie_width"]:
        return "–"
    generation, width = (f"{gpu[k] or '?'}/{gpu[f'{k}_max'] or '?'}" for k in ("pcie_generation", "pcie_width"))
    return f"gen {generation} ×{width}"


def _links(answer: Answer) -> list[Line]:
    said = [text for part in ("topology", "peer_access") if answer[part] for text in answer[part]["explained"]]
    said += answer["nvlinks_explained"]
    return ["links", *(line for text in said for line in wrapped_text("  ", text, screen_width()))] if said else []


def _nccl(test: Answer | None) -> list[Line]:
    if test is None:
        return []
    best = test["best"]
    top = max(best["out_busbw"], best["in_busbw"] or 0.0)
    of = f"{(test['collective'] or 'collective').replace('_', '-')}, {test['ranks'] or '?'} ranks"
    lines: list[Line] = [f"NCCL  {of}: {top:,.2f} GB/s bus bandwidth at {format_bytes(best['size_bytes'], 'auto')}"]
    if test["avg_busbw"] is not None:
        lines.append(
            f"  the printed average, {test['avg_busbw']:,.2f} GB/s, is over all sizes, small ones too: no capacity"
        )
    return [*lines, *(f"  {note}" for note in test["notes"])]


def _counters(samples: Sequence[Answer]) -> list[Line]:
    rows = [(f"GPU {one['gpu']}", one["field"], f"{one['value']:,.1f} {one['unit']}") for one in samples]
    return [*columns(rows, numbers_from=2)] if rows else []


def _network(network: Sequence[Answer]) -> list[Line]:
    rows: list[tuple[str, ...]] = [("network", "speed", "state", "received", "sent")]
    for each in network:
        speed = "–" if each["speed_gbit_s"] is None else f"{each['speed_gbit_s']:g} Gbit/s"
        counted = each["counters"]
        moved = (format_bytes(counted[f"{way}_bytes"], "auto") for way in ("received", "sent"))
        rows.append((each["name"], speed, "up" if each["up"] else "down", *moved))
    return [*columns(rows)] if network else []


def _host(host: Answer | None) -> list[Line]:
    if host is None:
        return []
    memory = f"{_size(host['memory_available_bytes'])} of {_size(host['memory_total_bytes'])} memory available"
    disks = ", ".join(f"{disk['path']} {format_bytes(disk['free_bytes'])} free" for disk in host["disks"])
    text = (
        f"{counted(host['processors'], 'processor')}, {memory}, /dev/shm {_size(host['shared_memory_bytes'])}, {disks}"
    )
    return [*wrapped_text("host      ", text, screen_width())]


def _software(answer: Answer) -> list[Line]:
    width = screen_width()
    lines: list[Line] = []
    if answer["packages"]:
        text = ", ".join(f"{name} {version}" for name, version in answer["packages"].items())
        lines += wrapped_text("software  ", text, width)
    versions = [f"{name} {value}" for name, value in answer["versions"].items() if value is not None]
    if versions:
        lines += wrapped_text("versions  ", ", ".join(versions), width)
    broken = [op for op, state in answer["ops"].items() if not state["compatible"]]
    if broken:
        lines += wrapped_text("          ", f"DeepSpeed ops that cannot be built: {', '.join(broken)}", width)
    return lines


def _conflicts(answer: Answer) -> list[Line]:
    known = bool(answer["packages"])
    found = answer["conflicts"] or (["none found among the versions above"] if known else [])
    return [line for text in found for line in wrapped_text("conflicts ", text, screen_width())]


def _notes(notes: Sequence[str]) -> list[Line]:
    shown = list(notes[:_SHOWN_WARNINGS])
    if len(notes) > len(shown):
        shown.append(f"and {len(notes) - len(shown)} more")
    return [line for text in shown for line in wrapped_text("note      ", text, screen_width())]


def _size(value: int | None) -> str:
    return "–" if value is None else format_bytes(value)
