"""Hidden states of the layers that a drafter reads, which a pass hands on beside its last ones (EAGLE-3)."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.allocator import block_bytes
from vramwise.result import Node
from vramwise.serving.vllm.drafts import drafts_like_the_last_layer, reads_layers
from vramwise.serving.vllm.settings import Resolved

READ_LAYERS = 3  # models/interfaces.py get_eagle3_default_aux_hidden_state_layers: one near each end, one in the middle
DRAFTER_RUNS_VERSION = (0, 9, 2)  # v1/worker/gpu_model_runner.py _dummy_run: not in 0.8.5
# beside what its layer makes: the model's last hidden states, the drafter's embeddings and those after their norm, less
# the residual, which is a buffer that it has from the beginning; the second runner keeps the joined states too
BESIDE_THE_DRAFTER, BESIDE_ON_V2 = 2, 3


def read_states(model: Model, r: Resolved) -> tuple[Node, ...]:
    """Alive from their layers to the end of the drafter's pass; none where the drafter reads the last layer alone."""
    if r.profile.generation != "V1" or not reads_layers(r):
        return ()
    return (_states("hidden states that the drafter reads", READ_LAYERS, model, r),)


def beside_the_drafter(model: Model, r: Resolved) -> tuple[Node, ...]:
    """What is alive beside the drafter's layer in the profile run, where that is one like the model's own."""
    read = read_states(model, r)
    if not read or r.version < DRAFTER_RUNS_VERSION or not drafts_like_the_last_layer(model):
        return ()
    copies = BESIDE_ON_V2 if r.on_v2_runner else BESIDE_THE_DRAFTER
    return (*read, _states("what the drafter is given", copies, model, r))


def _states(name: str, copies: int, model: Model, r: Resolved) -> Node:
    return Node(
        name, copies * block_bytes(r.batched_tokens * model.hidden_size * r.storage.bytes_per_element), "derived",
        formula="copies × tokens × hidden size × dtype",
        inputs={"copies": copies, "tokens": r.batched_tokens, "hidden_size": model.hidden_size},
        source="vLLM 0.9.2 to 0.31.0 v1/worker/gpu_model_runner.py _dummy_run, models/llama.py, llama_eagle3.py; "
        "0.24.0 v1/worker/gpu/spec_decode/autoregressive/speculator.py",
    )  # fmt: skip
