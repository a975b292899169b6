"""One accelerator, and the list of all.

Which number formats and attention kernels run on an architecture.
"""

from __future__ import annotations

from functools import cache

from vramwise.hardware.memory import MemoryEstimate, nominal_total, reported_bytes, usable_memory
from vramwise.hardware.shared_memory import share_note, shared_memory
from vramwise.plugins import Installed, check_names, installed
from vramwise.records import record
from vramwise.tables import Row, rows_of, table


@record
class Support:
    """Each field is `yes`, `no`, `partial` or `unknown`; `note` says what the words leave out."""

    bf16: str
    fp8_gemm: str
    fp8_weights: str
    fp4: str
    flash_attention_1: str
    flash_attention_2: str
    flash_attention_3: str
    note: str
    source: str


_NOT_KNOWN = "unknown"
UNKNOWN = Support(
    bf16=_NOT_KNOWN,
    fp8_gemm=_NOT_KNOWN,
    fp8_weights=_NOT_KNOWN,
    fp4=_NOT_KNOWN,
    flash_attention_1=_NOT_KNOWN,
    flash_attention_2=_NOT_KNOWN,
    flash_attention_3=_NOT_KNOWN,
    note="",
    source="no support table for this device",
)


@cache
def support_of(compute_capability: str) -> Support:
    """The row of support.csv for a compute capability (`9.0`) or gfx name (`gfx942`): exact, else major."""
    rows = {row["key"]: row for row in table(__file__, "support")}
    major = compute_capability.partition(".")[0] if "." in compute_capability else compute_capability[:5]
    row = rows.get(compute_capability) or rows.get(major)
    if row is None:
        return UNKNOWN
    return Support(
        row["bf16"],
        row["fp8_gemm"],
        row["fp8_weights"],
        row["fp4"],
        row["flash_attention_1"],
        row["flash_attention_2"],
        row["flash_attention_3"],
        row["note"],
        row["source"],
    )


_RATES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")


SERVER_NVLINK_GB_S = 300  # V100


@record
class Gpu:
    """One row of gpus.csv. Rates are dense, fp16 and bf16 with fp32 accumulation; None means not known.

    Memory is told three ways: `memory_nominal_gb` as sold, `memory_reported_bytes` as the driver prints it
    (None without evidence), `usable` as PyTorch sees it on one device. A board with two devices
    (`devices` = 2) is sold, and rated, as a whole. A device that shares its host's memory (`unified_memory`) is sold
    with one of `memory_options_gb`; `usable` is then what a process may take of it by default.
    """

    id: str
    name: str
    vendor: str
    arch: str
    compute_capability: str
    memory_nominal_gb: float | None
    memory_reported_bytes: int | None
    usable: MemoryEstimate | None
    bandwidth_gb_s: float | None
    tflops: tuple[tuple[str, float], ...]
    fp16_accumulate_tflops: float | None
    nvlink_gb_s: float | None
    pcie: str
    tdp_watt: float | None
    sm_count: int | None
    devices: int
    unified_memory: bool
    memory_options_gb: tuple[int, ...]
    memory_note: str | None
    support: Support
    memory_source: str
    source: str
    notes: str
    confidence: str

    @property
    def is_linked(self) -> bool:
        """Whether cards of this kind usually come linked: by NVLink of a server board, not by a bridge of two cards
        (112 GB/s on RTX and A-series cards)."""
        return self.nvlink_gb_s is not None and self.nvlink_gb_s >= SERVER_NVLINK_GB_S

    @property
    def usable_bytes(self) -> int | None:
        """Expected total that PyTorch sees; of shared memory, what a process may take."""
        return None if self.usable is None else self.usable.expected

    @property
    def memory_total_bytes(self) -> int | None:
        """The driver's total where known, else what drivers report of the size as sold (one device)."""
        if self.memory_reported_bytes is not None or self.memory_nominal_gb is None:
            return self.memory_reported_bytes or self.usable_bytes
        sold = nominal_total(self.vendor, self.memory_nominal_gb / self.devices, shared=self.unified_memory)
        return max(sold, self.usable_bytes or 0)

    @property
    def runs_cuda_code(self) -> bool:
        """Whether PyTorch's CUDA code runs here, as it is or through HIP."""
        return self.vendor in ("NVIDIA", "AMD")

    @property
    def has_rates(self) -> bool:
        """Whether bandwidth and a matrix rate are known."""
        return self.bandwidth_gb_s is not None and any(self.dense_tflops(name) for name in ("bf16", "fp16", "fp32"))

    def dense_tflops(self, dtype: str) -> float | None:
        """Dense matrix rate for `fp32`, `tf32`, `fp16`, `bf16`, `fp8`, `int8` (TOPS) or `fp4`."""
        return dict(self.tflops).get(dtype)

    def supports(self, feature: str) -> bool | None:
        """Whether `bf16`, `fp8_gemm`, `fp8_weights`, `fp4`, `flash_attention_2` or `flash_attention_3`
        runs here; None when that is not known."""
        return {"yes": True, "partial": True, "no": False}.get(getattr(self.support, feature))


def gpus(query: str | None = None) -> list[Gpu]:
    """All accelerators by id, or those whose id, name, vendor or architecture hold every word of `query`."""
    words = (query or "").lower().split()
    return [
        gpu_of(row["id"])
        for row in (*table(__file__, "gpus"), *added_rows().values())
        if all(word in f"{row['id']} {row['name']} {row['vendor']} {row['arch']}".lower() for word in words)
    ]


@cache
def rows_by_id() -> dict[str, Row]:
    """Rows of gpus.csv by id."""
    return {row["id"]: row for row in table(__file__, "gpus")}


@cache
def added_rows() -> dict[str, Row]:
    """Rows of cards that plug-ins add, by id. Raises VramwiseError for a card that is known already."""
    known: dict[str, Installed] = {}
    rows: dict[str, Row] = {}
    for one in installed():
        for row in (row for path in one.plugin.gpus for row in rows_of(path)):
            check_names(known, row["id"], "the card", one, rows_by_id())
            known[row["id"]], rows[row["id"]] = one, row
    return rows


@cache
def sized_ids() -> dict[str, tuple[str, int]]:
    """Ids with a size of shared memory (`apple-m3-max-40core-64gb`): the row's id, and the size."""
    return {
        f"{row['id']}-{size}gb": (row["id"], size)
        for row in table(__file__, "gpus")
        for size in memory_options(row)
        if row["memory_options_gb"]
    }


def memory_options(row: Row) -> tuple[int, ...]:
    """Sizes in which shared memory is sold, the smallest first; empty for a card with memory of its own."""
    if not row["unified"]:
        return ()
    return tuple(sorted(int(size) for size in (row["memory_options_gb"] or row["memory_nominal_gb"]).split(";")))


@cache
def gpu_of(gpu_id: str) -> Gpu:
    """The accelerator with exactly this id; the smallest of shared memory where the id says no size."""
    base, size = sized_ids().get(gpu_id, (gpu_id, 0))
    row = rows_by_id().get(base) or added_rows()[base]
    sizes = memory_options(row)
    shared = size or (sizes[0] if sizes else 0)
    rates = ((name, row.number_or_none(f"{name}_{'tops' if name == 'int8' else 'tflops'}")) for name in _RATES)
    return Gpu(
        id=gpu_id,
        name=f"{row['name']} {size} GB" if size else row["name"],
        vendor=row["vendor"],
        arch=row["arch"],
        compute_capability=row["compute_capability"],
        memory_nominal_gb=float(shared) if shared else row.number_or_none("memory_nominal_gb"),
        memory_reported_bytes=reported_bytes(row),
        usable=shared_memory(row, shared) if shared else usable_memory(row),
        bandwidth_gb_s=row.number_or_none("bandwidth_gb_s"),
        tflops=tuple((name, rate) for name, rate in rates if rate is not None),
        fp16_accumulate_tflops=row.number_or_none("fp16_fp16acc_tflops"),
        nvlink_gb_s=row.number_or_none("nvlink_gb_s"),
        pcie=row["pcie"],
        tdp_watt=row.number_or_none("tdp_w"),
        sm_count=row.whole_or_none("sm_count"),
        devices=row.whole("devices"),
        unified_memory=bool(row["unified"]),
        memory_options_gb=sizes,
        memory_note=share_note(row, shared) if shared else None,
        support=support_of(row["compute_capability"]),
        memory_source=row["memory_source"],
        source=row["source"],
        notes=row["notes"],
        confidence=row["confidence"],
    )
