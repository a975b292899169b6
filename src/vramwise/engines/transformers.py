"""Plain transformers: `generate` on one batch, with weights in the dtype that the checkpoint states."""

from __future__ import annotations

from vramwise.engines.engine import Engine

RECORD = Engine(
    name="transformers",
    title="transformers",
    serving="transformers",
    divides_by_room=True,
    newest="5.23.0",
    fuses_layers=False,
    lays_out_layers=True,  # cli/serve.py of 5.23: device "auto" is from_pretrained's device_map
    narrower_weights=("bitsandbytes-int8", "bitsandbytes-nf4"),
    rollout_names=("hf",),
    words={"n_ctx": "max_model_len", "n_parallel": "max_num_seqs"},
)
