"""ollama: runs llama.cpp (until 0.30 runners of its own), with a context, a batch and slots of its own choice."""

from __future__ import annotations

from vramwise.engines.engine import CommandLine, Engine
from vramwise.engines.llama_cpp import PHASES, WORDS

RECORD = Engine(
    name="ollama",
    title="ollama",
    serving="llama_cpp",
    runs="llama.cpp",
    dated=(("0.30.0", "2026-05-29"),),
    phases=PHASES,
    reads_gguf=True,
    takes_any_adapter_rank=True,  # src/llama-adapter.cpp: an adapter's own tensors
    divides_by_room=True,
    runs_on_cpu=True,
    words=WORDS,
    command_line=CommandLine(programs=("ollama",), example="ollama run", subcommands=True, variables="OLLAMA_"),
)
