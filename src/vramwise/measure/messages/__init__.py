"""Out-of-memory messages: what each program and version prints, read into the same few numbers.

A file for each family of wordings: `torch`, `engines` (those that serve models), `compilers` (XLA, TensorFlow, ONNX
Runtime), `drivers` (CUDA itself, cuBLAS, NCCL, Vulkan, Metal), `host` (NumPy, pinned and shared memory, killed
processes). A wording is weak where a run may go on after it, or where it says that a process ended and not why: weak
ones count only where a text is known to tell of a failure.
"""

from __future__ import annotations

from vramwise.measure.messages.finding import LONGEST_TEXT, MOST_MESSAGES, failures_in, messages_in
from vramwise.measure.messages.message import OomMessage

__all__ = ["LONGEST_TEXT", "MOST_MESSAGES", "OomMessage", "failures_in", "messages_in"]
