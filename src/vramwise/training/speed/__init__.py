"""How long an optimizer step takes: kernels by a roofline, collectives by links, and what hides behind what."""

from vramwise.training.speed.step_time import StepTime, step_time

__all__ = ["StepTime", "step_time"]
