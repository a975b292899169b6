"""Runs launcher commands dry, one after another in this process: `in_ranks.py COMMANDS.json` prints their answers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

from vramwise.dryrun.script import run_script

CARD = {"name": "NVIDIA H100", "total_bytes": 80 * 2**30, "capability": (9, 0)}
said = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
commands, folder = sys.argv[1:]
answers = []
for rank, words in json.loads(Path(commands).read_text("utf-8")):
    asked = {
        "command": words, "rank": rank, "card": CARD, "workspace_bytes": 0, "timeout_s": 600, "folder": folder,
        "allow_writes": False, "room_bytes": None, "assumed": {},
    }  # fmt: skip
    answers.append(run_script(asked))
    if dist.is_initialized():
        dist.destroy_process_group()
said.write(json.dumps(answers))
said.flush()
os._exit(0)
