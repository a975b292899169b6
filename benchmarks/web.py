"""`vramwise web` under load: connections that stay open, questions at a steady rate, the slowest of a hundred.

python benchmarks/web.py [--seconds 60] [--connections 200] [--rate 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from itertools import cycle

SERVING = [
    {"model": model, "task": "serve", "gpu": gpu, "serve": {"max_model_len": length}}
    for model in ("llama-3.1-8b", "qwen2.5-7b", "mistral-7b-v0.3")
    for gpu in ("4090", "h100")
    for length in (4096, 8192, 16384)
]
TRAINING = [
    {"model": model, "task": "train", "gpu": "a100-80gb", "train": {"method": method, "micro_batch_size": batch}}
    for model in ("llama-3.1-8b", "qwen2.5-7b")
    for method in ("lora", "full")
    for batch in (1, 2, 4)
]
GOALS_MS = {"serve": 100, "train": 300}


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str, body: object) -> int:
    """The status of one question over a connection that stays open."""
    content = json.dumps(body).encode()
    head = f"POST /api/v1/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    status = int((await reader.readline()).split()[1])
    length = 0
    while line := (await reader.readline()).strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    await reader.readexactly(length)
    return status


async def load(port: int, name: str, seconds: float, connections: int, rate: float) -> None:
    """Ask at the rate, print what it took."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections)]
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for scenario in (*SERVING, *TRAINING) * (os.cpu_count() or 1):  # every process has seen every model
        await asyncio.gather(*(asked(*one, name, scenario) for one in opened[: os.cpu_count()]))
    for one in opened:
        free.put_nowait(one)
    took: dict[str, list[float]] = {"serve": [], "train": []}
    bad: list[int] = []

    async def one_question(scenario: dict[str, object]) -> None:
        begun = time.perf_counter()
        connection = await free.get()
        status = await asked(*connection, name, scenario)
        free.put_nowait(connection)
        took[str(scenario["task"])].append(1000 * (time.perf_counter() - begun))
        if status != 200:
            bad.append(status)

    serving, training = cycle(SERVING), cycle(TRAINING)
    begun, running = time.perf_counter(), []
    for number in range(round(seconds * rate)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        running.append(asyncio.create_task(one_question(next(training if number % 5 == 4 else serving))))
    await asyncio.gather(*running)
    print(f"{name}: {connections} connections, {len(running):,} questions in {time.perf_counter() - begun:.1f} s, "
          f"{len(bad)} errors")  # fmt: skip
    for task, times in took.items():
        times.sort()
        p50, p99 = times[len(times) // 2], times[min(len(times) - 1, round(len(times) * 0.99))]
        print(f"  {task:<6} {len(times):,} median {p50:.0f} ms, p99 {p99:.0f} ms (goal {GOALS_MS[task]} ms)")
    for _, writer in opened:
        writer.close()


def main() -> None:
    """Start a server, ask it, end it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50)
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    command = [sys.executable, "-m", "vramwise", "web", "--port", "0", "--offline"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        port = int(server.stderr.readline().split()[1].rstrip("/").rpartition(":")[2])
        for name in ("result", "estimate"):
            asyncio.run(load(port, name, args.seconds, args.connections, args.rate))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
