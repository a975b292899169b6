"""torchtune's recipes."""

from __future__ import annotations

from vramwise.frameworks.framework import Casts, Framework, Loss, Quantizing, Sharding, always

RECORD = Framework(
    name="torchtune",
    title="torchtune",
    package="torchtune",
    batches="padded",
    checkpointing_note="it is on in torchtune's recipes",
    casts=Casts(autocast="never"),  # recipes compute in the weights' dtype
    loss=Loss(compiled_chunks=True),  # 0.6.1 training/_compile.py compile_loss
    quantizing=Quantizing(keeps_originals=False),  # adapters of its own (modules/peft)
    sharding=Sharding(outer_units=always),  # 0.6.1 recipes/configs: custom_sharded_layers
)
