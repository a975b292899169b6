"""Quartz's own server: text-generation-inference under another name, with its settings."""

from vramwise.engines import Engine

RECORD = Engine(
    name="quartz-server",
    title="Quartz server",
    serving="tgi",
    like="tgi",
    memory_share="gpu_memory_utilization",
    cache_dtypes=("auto",),
)
