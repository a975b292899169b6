"""What a checkpointed layer keeps instead of everything.

`full`: the layer's input. `selective` by `recompute`: `layer:N` checkpoints every N-th layer in full; `op` keeps
the outputs of every second matrix product and of attention (torchtitan 0.2, activation_checkpoint.py);
`core_attn`, `mlp`, `layernorm`, … drop what those modules saved (Megatron-LM --recompute-modules) and keep the rest.
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Storage
from vramwise.models.step import BlockRun
from vramwise.scenario import TrainSettings
from vramwise.training.settings import HUGGING_FACE
from vramwise.training.versions import library_version

_MATRIX_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "_grouped_mm"})

CACHE_OFF_SINCE = (4, 53)  # transformers modeling_gpt_bigcode.py

ROTARY_TABLES = frozenset({"cos", "sin"})

_ACTIVATIONS = frozenset({"silu", "gelu", "relu", "pow", "mul", "fused_gated_activation"})


def kept_storages(run: BlockRun, train: TrainSettings) -> list[Storage] | None:
    """Storages that stay from forward to backward; None where the block is not checkpointed."""
    if (run.layer is None and not run.tower_layer) or train.checkpointing == "none":
        return None
    if train.checkpointing == "full":
        return boundary(run)
    what = train.recompute or ("op",)
    every = next((int(name.partition(":")[2]) for name in what if name.startswith("layer:")), None)
    if every is not None:
        return boundary(run) if run.layer is not None and run.layer % every == 0 else None
    if what == ("op",) or any(name.startswith("all-but") for name in what):
        return _selected_operations(run)
    return _without(run, what)


def boundary(run: BlockRun) -> list[Storage]:
    """The incoming hidden states, and what is saved here but made outside any block.

    Rotary tables are made before the layers and handed to each (transformers' `position_embeddings`); the recording has
    them in the first layer that reads them.
    """
    made = {output.storage for node in run.nodes for output in node.outputs}
    read = {tensor.storage for node in run.nodes for tensor in node.inputs}
    streams = {tensor.storage: None for tensor in run.incoming}
    saved = (storage for storage, _ in run.saved if storage.kind == "activation")
    constants = [s for s in saved if s in read and (s not in made or s.op in ROTARY_TABLES)]
    return list(dict.fromkeys([*streams, *constants]))


def cached_by_outputs(run: BlockRun, train: TrainSettings, model_type: str) -> list[Storage]:
    """What the outputs' cache refers to and a checkpointed layer does not keep.

    Modeling files turn the cache off under checkpointing, but gpt_bigcode's only since transformers 4.53: its keys and
    values are views of the fused product, all of which stays until the outputs go.
    """
    is_old = train.framework in HUGGING_FACE and library_version(train) < CACHE_OFF_SINCE
    if run.layer is None or train.checkpointing != "full" or model_type != "gpt_bigcode" or not is_old:
        return []
    fused = [node for node in run.nodes if "c_attn" in node.module.split(".")]
    return [fused[-1].outputs[0].storage]


def _selected_operations(run: BlockRun) -> list[Storage]:
    kept: dict[Storage, None] = dict.fromkeys(boundary(run))
    products = 0
    for node in run.nodes:
        if node.op in _MATRIX_PRODUCTS:
            products += 1
            if products % 2:
                kept[node.outputs[0].storage] = None
        elif node.op.startswith("_scaled_dot_product"):
            kept.update(dict.fromkeys(output.storage for output in node.outputs))
    return list(kept)


def _without(run: BlockRun, what: tuple[str, ...]) -> list[Storage]:
    """Everything that is saved but what the named parts made between their inputs and outputs."""
    kept = dict.fromkeys([*boundary(run), *(storage for storage, _ in run.saved)])
    experts = _layer_of_experts(run)
    for node in run.nodes:
        if _belongs(node.module, node.op, what, experts):
            for output in node.outputs:
                kept.pop(output.storage, None)
    return list(kept)


def _layer_of_experts(run: BlockRun) -> str | None:
    """The module that holds a block's router and experts; None in a dense block."""
    names = (node.module.split(".") for node in run.nodes)
    return next((".".join(name[: name.index("experts")]) for name in names if "experts" in name), None)


def _belongs(module: str, op: str, what: tuple[str, ...], experts: str | None) -> bool:
    core = op.startswith("_scaled_dot_product") or op in ("softmax", "_softmax", "bmm")
    norm = "norm" in module or "ln_" in module
    in_experts = experts is not None and (module == experts or module.startswith(f"{experts}."))
    return (
        ("core_attn" in what and core)
        or ("layernorm" in what and norm)
        or ("mlp" in what and experts is None and "mlp" in module)
        or ("moe" in what and in_experts)
        or ("moe_act" in what and (op in _ACTIVATIONS if in_experts else "act" in module))
    )
