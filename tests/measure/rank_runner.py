"""Runs jobs one after another as one rank of several: `rank_runner.py RANK RANKS FOLDER PORT…`, a port for each job."""

import os
import sys
from pathlib import Path

from vramwise.measure.worker import main

rank, ranks, folder, *ports = sys.argv[1:]
os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1"}
for i, port in enumerate(ports):
    os.environ["MASTER_PORT"] = port
    out = Path(folder) / str(i)
    out.mkdir(exist_ok=True)
    main([str(Path(folder) / f"{i}.json"), str(out)])
