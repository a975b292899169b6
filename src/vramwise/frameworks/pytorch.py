"""A script of one's own: torch's loop around transformers' classes."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.framework import Framework

RECORD = Framework(
    name="pytorch",
    title="plain PyTorch",
    package="torch",
    classes="transformers",
    attention=attention_of_classes,
    exact=True,
    measured=True,
)
