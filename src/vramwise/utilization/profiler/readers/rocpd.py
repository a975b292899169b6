"""ROCm's rocpd databases (rocprofv3 since ROCm 7, rocprof-sys): one stream of events a process and GPU.

Tables and columns: ROCm/rocprofiler-sdk, rocpd_tables.sql, schema_version 3. Every table's name ends with the id of the
process that wrote it; the views beside them are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vramwise.utilization.profiler.readers.database import Condition, Database
from vramwise.utilization.profiler.readers.rows import Row, RowStream, call_row, gpu_row

KERNELS = "rocpd_kernel_dispatch"
COPY_NAMES = {
    "HOST_TO_DEVICE": "Memcpy HtoD",
    "DEVICE_TO_HOST": "Memcpy DtoH",
    "DEVICE_TO_DEVICE": "Memcpy DtoD",
    "HOST_TO_HOST": "Memcpy HtoH",
}
"""rocprofiler_memory_copy_operation_t, under the names that CUDA's copies have."""


def copy_name(said: str) -> str:
    """The name of a copy by its direction, which older releases write without MEMORY_COPY_ before it."""
    return COPY_NAMES.get(said.removeprefix("MEMORY_COPY_"), f"Memcpy {said}")


class Agent(NamedTuple):
    """A GPU in the tables of one process: what their names end with, and the row of the agent."""

    process: str
    row: int
    device: int
    name: str

    @property
    def shown(self) -> str:
        """What is said beside the file's name."""
        return f"GPU {self.device}" + (f", process {self.process[-8:]}" if self.process else "")


def is_rocpd(database: Database) -> bool:
    """Whether the tables are those of a rocpd database."""
    return any(table.startswith(KERNELS) for table in database.tables)


def agents(database: Database) -> list[Agent]:
    """Every GPU of every process with a kernel or a copy of its own."""
    found = []
    for table in database.tables:
        if not table.startswith(KERNELS):
            continue
        process = table.removeprefix(KERNELS)
        columns = ("id", "type", "type_index", "product_name", "name")
        known = {row[0]: row for row in database.rows(f"rocpd_info_agent{process}", columns)}
        for (agent,) in database.distinct(table, ("agent_id",)):
            if isinstance(agent, int):
                _, _, index, product, name = known.get(agent, (agent, None, None, None, None))
                shown = product if isinstance(product, str) and product else name
                number = index if isinstance(index, int) else agent
                found.append(Agent(process, agent, number, shown if isinstance(shown, str) else ""))
    return sorted(found)


def rows(database: Database, agent: Agent, stream: RowStream) -> Iterator[Row]:
    """Kernels, copies and HIP calls of one process's GPU."""
    of = agent.process
    if agent.name:
        stream.header["deviceProperties"] = [{"id": agent.device, "name": agent.name}]
    strings = database.texts(f"rocpd_string{of}", "string")
    shown = database.texts(f"rocpd_info_kernel_symbol{of}", "display_name")
    kernels = database.texts(f"rocpd_info_kernel_symbol{of}", "kernel_name") | shown
    # stack_id is the internal correlation id, which a call and what it launches share
    called = dict(database.rows(f"rocpd_event{of}", ("id", "stack_id")))
    columns: tuple[str, ...] = ("kernel_id", "start", "end", "stream_id", "event_id")
    for kernel, start, end, queue, event in database.rows(
        f"{KERNELS}{of}", columns, [Condition("agent_id", agent.row)]
    ):
        name = (kernels.get(kernel) or "").removesuffix(".kd")
        args = {"device": agent.device, "stream": queue, "correlation": called.get(event)}
        yield gpu_row("kernel", name, start, end, **args)
    columns = ("name_id", "size", "start", "end", "stream_id", "event_id", "dst_agent_id", "src_agent_id")
    for name, size, start, end, queue, event, *ends in database.rows(f"rocpd_memory_copy{of}", columns):
        if agent.row in ends:
            args = {"device": agent.device, "stream": queue, "correlation": called.get(event), "bytes": size}
            yield gpu_row("gpu_memcpy", copy_name(strings.get(name, "")), start, end, **args)
    for name, start, end, event in database.rows(f"rocpd_region{of}", ("name_id", "start", "end", "event_id")):
        if called.get(event):
            yield call_row(strings.get(name), start, end, called[event])
