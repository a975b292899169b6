"""The engines' own command lines, read as they are: `vllm serve MODEL …`, `llama-server -m FILE …` and their like."""

from __future__ import annotations

from vramwise.interop.launch.command import Launch, in_image, names_a_program, read_command

__all__ = ["Launch", "in_image", "names_a_program", "read_command"]
