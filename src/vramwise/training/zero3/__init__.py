"""What DeepSpeed's ZeRO stage 3 keeps gathered: modules in the order in which they run, and the coordinator's rule."""

from __future__ import annotations

from vramwise.training.zero3.coordinator import Gathered, Limits, ViewsKept, gathered
from vramwise.training.zero3.module_calls import Weight, calls_of_step, module_tree

__all__ = ["Gathered", "Limits", "ViewsKept", "Weight", "calls_of_step", "gathered", "module_tree"]
