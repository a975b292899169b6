"""Quartz's own trainer: a loop around transformers' classes in 16 bits."""

from vramwise.frameworks import Framework
from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.defaults import Default

RECORD = Framework(
    name="quartz-trainer",
    title="Quartz trainer",
    package="torch",
    defaults=(Default("", "precision", "bf16", "quartz-trainer 0.1 trainer.py: model.bfloat16()"),),
    classes="transformers",
    attention=attention_of_classes,
)
