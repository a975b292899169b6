"""What this package adds to vramwise; nothing else of it is imported before it is asked for."""

from pathlib import Path

from vramwise.plugins import Plugin

HERE = Path(__file__).parent

PLUGIN = Plugin(
    families={"quartz": "vramwise_quartz.family"},
    frameworks={"quartz-trainer": "vramwise_quartz.framework"},
    engines={"quartz-server": "vramwise_quartz.engine"},
    kernels={"quartz-kernels": "vramwise_quartz.kernels"},
    gpus=(HERE / "gpus.csv",),
    cases=(HERE / "cases.jsonl",),
)
