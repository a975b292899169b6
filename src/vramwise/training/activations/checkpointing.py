"""What a checkpointed layer keeps instead of everything.

`full`: the layer's input. `selective` by `recompute`: `layer:N` checkpoints every N-th layer in full, `block:N` the
first N of a pipeline stage (layers_apart.py); `op` keeps the outputs of every second matrix product and of attention
(torchtitan, activation_checkpoint.py); other names are Megatron-LM's --recompute-modules (core 0.16
transformer/transformer_config.py):

    core_attn, mlp, moe, shared_experts   run again from their inputs; what others keep of their outputs stays
    layernorm, moe_act, mla_up_proj       their outputs go too (tensor_parallel/random.py CheckpointWithoutOutput);
                                          under Megatron only norms that are no part of the product behind them
"""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version
from vramwise.models.autograd.size import Dim, product, total
from vramwise.models.autograd.tensor import ITEM_BYTES, Node, Storage, Tensor
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, Forward
from vramwise.models.type_facts import has_fact
from vramwise.training.recipe.gradient_life import reentrant
from vramwise.training.recipe.settings import execution, names_logits_of_last_pass
from vramwise.training.resolved import ResolvedTrain

ROTARY_TABLES = frozenset({"cos", "sin"})
ARGUMENTS = ROTARY_TABLES | {"mask"}
"""What the model makes once and hands to every layer."""

_BROUGHT = frozenset({"pixel_values", "input_features", "mask"})
_ROUTERS = frozenset({"gate", "router"})
_DISCARDED = frozenset({"layernorm", "moe_act", "mla_up_proj"})
_NORMS_OF_MLP = frozenset({"post_attention_layernorm", "ln_2", "pre_feedforward_layernorm"})
_UP_PROJECTIONS = frozenset({"q_a_layernorm", "q_b_proj", "q_proj", "kv_a_layernorm", "kv_b_proj"})


def kept_storages(run: BlockRun, train: ResolvedTrain) -> list[Storage] | None:
    """Storages that stay from forward to backward; None where the block is not checkpointed.

    Nor is one that saves nothing, since nothing in it wants a gradient: what its operations save alone refers to a
    checkpoint (torch 2.13 utils/checkpoint.py, the `_Holder`s of a `_CheckpointFrame`).
    """
    if (run.layer is None and not run.tower_layer) or train.checkpointing == "none" or not _saves(run):
        return None
    if train.checkpointing == "full":
        return boundary(run)
    what = train.recompute or ("op",)
    if run.is_recomputed is not None:
        return boundary(run) if run.is_recomputed else None
    if what == ("op",) or any(name.startswith("all-but") for name in what):
        kept = _selected_operations(run, train)
        return _read_again(run, kept) if train.compiles_layers else kept
    return _without(run, train, what)


def _saves(run: BlockRun) -> bool:
    return any(node.saved or node.saves_parameters for node in run.nodes)


def graphs_left(run: BlockRun, train: ResolvedTrain) -> frozenset[Storage]:
    """What stays of a checkpointed block's second forward pass until its modules run again.

    Under saved-tensor hooks backward goes through the first pass's graph and reads what the second made; nothing goes
    through the second's own, so that whoever names one of its values holds all that was saved on the way there (torch
    2.13 utils/checkpoint.py `_recomputation_hook`: what it packs goes to both). The reentrant kind goes through it.
    """
    named = [tensor for tensor in run.named_by_modules if tensor.requires_grad]
    if not named or kept_storages(run, train) is None or reentrant(train):
        return frozenset()
    behind = {id(tensor) for tensor in named}
    left = {tensor.storage for tensor in named}
    for node in reversed(run.nodes):
        if any(id(output) in behind for output in node.outputs):
            behind |= {id(tensor) for tensor in node.inputs if tensor.requires_grad}
            left |= {storage for storage, _ in node.saved if storage.kind not in ("input", "registered")}
    return frozenset(left)


def replayed_nodes(run: BlockRun, train: ResolvedTrain) -> frozenset[int]:
    """Places of a block's operations that run again in backward; none where it is not checkpointed.

    Of a checkpointed layer those whose outputs are not kept, of named modules their own alone: what lies between them
    and is not kept, such as a product in front of a dropout, nobody reads in backward.
    """
    kept = kept_storages(run, train)
    if kept is None:
        return frozenset()
    what = train.recompute or ("op",)
    by_operation = what == ("op",) or any(name.startswith("all-but") for name in what)
    if train.checkpointing == "selective" and run.is_recomputed is None and not by_operation:
        parts = _PartsOf(run, train)
        return frozenset(i for name in what for i in parts.operations(name))
    there = frozenset(kept)
    return frozenset(
        i for i, node in enumerate(run.nodes) if not any(output.storage in there for output in node.outputs)
    )


def boundary(run: BlockRun) -> list[Storage]:
    """The incoming hidden states, and what is saved here but is an argument of the layer.

    Rotary tables and masks are made before the layers and handed to each (transformers' `position_embeddings`); the
    recording has them in the first layer that reads them. Other constants (T5's buckets of distances, which sides of
    an activation apply) are the layer's own, and made again with it.
    """
    read = {tensor.storage for node in run.nodes for tensor in node.inputs}
    streams = {tensor.storage: None for tensor in run.incoming}
    saved = (storage for storage, _ in run.saved if storage.kind == "activation")
    arguments = [storage for storage in saved if storage in read and storage.op in ARGUMENTS]
    return list(dict.fromkeys([*streams, *arguments]))


def names_caches(model: Model, train: ResolvedTrain) -> bool:
    """Whether a variable of the loop names, with a step's outputs, a cache of keys and values until the next outputs.

    Modeling files turn the cache off where layers are checkpointed (`if self.gradient_checkpointing and
    self.training`).
    """
    return names_logits_of_last_pass(train) and _fills_a_cache(model, train)


def _fills_a_cache(model: Model, train: ResolvedTrain) -> bool:
    if train.checkpointing != "none" or not framework_of(train).caches_in_training(train):
        return False
    return bool(model.config.get("use_cache", True))


def cached_by_outputs(run: BlockRun, train: ResolvedTrain, model: Model) -> list[Storage]:
    """What the outputs' cache refers to, beside what a checkpointed layer keeps.

    Modeling files turn the cache off under checkpointing, but gpt_bigcode's only since transformers 4.53: its keys and
    values are views of the fused product, all of which stays until the outputs go.
    """
    if names_caches(model, train) or (framework_of(train).trainer and _fills_a_cache(model, train)):
        received = {tensor.storage for tensor in run.incoming}
        return [storage for storage in dict.fromkeys(run.for_cache) if storage not in received]
    cached = has_fact("transformers", "cache_while_checkpointing", model.config.model_type, library_version(train))
    if run.layer is None or train.checkpointing != "full" or not cached or not framework_of(train).trainer:
        return []
    fused = [node for node in run.nodes if node.outputs and "c_attn" in node.module.split(".")]
    return [fused[-1].outputs[0].storage]


def _selected_operations(run: BlockRun, train: ResolvedTrain) -> list[Storage]:
    """Products of weights without biases alternate; grouped ones of experts are in no list (frameworks/torchtitan.py).

    Where experts are spread over ranks and what their all-to-alls bring is kept: tokens as the first grouped product
    reads them, and as many of what the last one makes.
    """
    kept: dict[Storage, None] = dict.fromkeys(boundary(run))
    framework, products = framework_of(train), 0
    takes_all, routers = framework.selects_all_products(train), framework.selects_routers(train)
    for node in run.nodes:
        if node.op == "mm":
            if not routers and node.module.rpartition(".")[2] in _ROUTERS:
                continue
            products += 1
            if products % 2:
                kept[node.outputs[0].storage] = None
        elif node.op in ("addmm", "bmm") and takes_all:
            kept[node.outputs[0].storage] = None
        elif node.primitive.is_attention:
            kept.update(dict.fromkeys(output.storage for output in node.outputs))
    grouped = [node for node in run.nodes if node.primitive.product == "grouped"]
    if grouped and train.expert_parallel_size > 1 and framework.selects_exchanges(train):
        kept |= dict.fromkeys((grouped[0].inputs[0].storage, grouped[-1].outputs[0].storage))
    return list(kept)


def _read_again(run: BlockRun, kept: list[Storage]) -> list[Storage]:
    """What of it the operations that run again read, or backward itself: a compiled layer keeps no other output.

    The policy marks outputs, and the partitioner saves those of them that backward's graph reads (torch 2.13
    _functorch/partitioners.py); without compile the cache holds all (torch/utils/checkpoint.py
    `_CachingTorchDispatchMode`), also a layer's last product, which only the next layer reads.
    """
    at_hand = set(kept)
    needed = {storage for storage, _ in run.saved}
    for node in reversed(run.nodes):
        made = {output.storage for output in node.outputs} - at_hand
        if made & needed:
            needed |= {tensor.storage for tensor in node.inputs}
    return [storage for storage in kept if storage in needed]


def _without(run: BlockRun, train: ResolvedTrain, what: tuple[str, ...]) -> list[Storage]:
    """Everything that is saved but what the named parts made and nothing else keeps."""
    parts = _PartsOf(run, train)
    replayed = {i for name in what for i in parts.operations(name)}
    discarded = {out.storage for name in what if name in _DISCARDED for i in parts.operations(name)
                 for out in run.nodes[i].outputs}  # fmt: skip
    if "mla_up_proj" in what and parts.is_latent:
        discarded |= parts.expanded
    made = {out.storage for i in replayed for out in run.nodes[i].outputs if out.storage.op not in ROTARY_TABLES}
    elsewhere = {s for i, node in enumerate(run.nodes) if i not in replayed for s, _ in node.saved}
    read = {t.storage for i in replayed for t in run.nodes[i].inputs if _is_input(t, made)}
    kept = dict.fromkeys([*boundary(run), *(storage for storage, _ in run.saved)])
    for storage in [*kept]:
        if storage in discarded or (storage in made and storage not in elsewhere):
            kept.pop(storage)
    kept.update(dict.fromkeys(s for s in read if s not in discarded))
    return list(kept)


def _is_input(tensor: Tensor, made: set[Storage]) -> bool:
    is_value = tensor.storage.kind == "activation" and not tensor.is_parameter and tensor.requires_grad
    return is_value and tensor.storage not in made


class _PartsOf:
    """Which of Megatron's modules an operation of a block belongs to."""

    def __init__(self, run: BlockRun, train: ResolvedTrain) -> None:
        self.nodes = run.nodes
        names = [node.module.split(".") for node in run.nodes]
        self.experts = next((".".join(name[: name.index("experts")]) for name in names if "experts" in name), None)
        self.is_latent = any(name[-1].startswith(("kv_a_proj", "kv_b_proj")) for name in names)
        self.fuses_norms = framework_of(train).fuses_norms
        queries = [node for node in run.nodes if node.primitive.is_attention]
        self.expanded = {t.storage for node in queries for t in node.inputs if t.requires_grad}

    def operations(self, name: str) -> list[int]:
        """Places of a part's operations: its own, and those between them that read nothing else (act(gate) · up)."""
        found: list[int] = []
        made: set[Storage] = set()
        modules = {""} | {node.module for node in self.nodes if name == "core_attn" and self.has(node, name)}
        for i, node in enumerate(self.nodes):
            values = {t.storage for t in node.inputs if t.requires_grad and not t.is_parameter}
            between = name not in _DISCARDED and node.module in modules and values and values <= made
            if between or self.has(node, name):
                found.append(i)
                made.update(out.storage for out in node.outputs)
        return found

    def has(self, node: Node, name: str) -> bool:
        in_experts = self._is_inside(node)
        parts = node.module.split(".")
        if name == "core_attn":
            return node.primitive.is_attention or node.op in ("_softmax", "fused_softmax", "bmm")
        if name == "layernorm":
            return self._is_norm_of_its_own(node)
        if name == "mlp":
            is_mlp = "mlp" in parts or (self.fuses_norms and "." not in node.module and parts[0] in _NORMS_OF_MLP)
            return self.experts is None and is_mlp
        if name == "moe":
            return in_experts
        if name == "moe_act":
            return self.experts is not None and node.primitive.is_activation and "experts" in parts
        if name == "shared_experts":
            return in_experts and any(part.startswith("shared_expert") for part in parts)
        return name == "mla_up_proj" and self.is_latent and parts[-1] in _UP_PROJECTIONS

    def _is_inside(self, node: Node) -> bool:
        return self.experts is not None and (node.module == self.experts or node.module.startswith(f"{self.experts}."))

    def _is_norm_of_its_own(self, node: Node) -> bool:
        """Transformer Engine runs a norm in front of a column-parallel product together with it (gpt_layer_specs.py).

        Those in front of latent attention's several products and of routed experts stand alone.
        """
        if not node.in_norm:
            return False
        if not self.fuses_norms:
            return True
        is_first = node.module in ("input_layernorm", "ln_1")
        return "." not in node.module and (self.is_latent if is_first else self.experts is not None)


def brought_with_batch(forward: Forward) -> Dim:
    """What comes with the batch beside ids: images, a mask of packed samples."""
    runs = {id(run): run for run in forward.runs}.values()
    inputs = (tensor.storage for run in runs for node in run.nodes for tensor in node.inputs)
    brought = {s: s.nbytes for s in inputs if s.kind == "input" and s.op in _BROUGHT}
    return total(brought.values())


def masks_held(forward: Forward, model: Model, train: ResolvedTrain, *, passing: bool = False) -> Dim:
    """Attention masks, one for each kind of window: arguments of checkpointed layers stay until backward.

    Those that a layer saves are among what it keeps, but in a `passing` forward nothing is saved.
    """
    masks: dict[int | None, Dim] = {}
    own_rows = execution(train, model).hands_out_masks
    saved = set() if passing else {storage for run in forward.runs for storage, _ in run.saved}
    windows = {block.layer: block.caches[0].window if block.caches else None for block in model.layers()}
    for run in {id(run): run for run in forward.runs}.values():
        if kept_storages(run, train) is None:
            continue
        for node in run.nodes:
            for tensor in node.inputs:
                storage = tensor.storage
                if storage.op == "mask" and storage.kind != "input" and storage not in saved:
                    # SDPA's boolean mask of a window is one sequence's, seen once for each of the batch.
                    rows = tensor.shape[1:] if tensor.dtype == "bool" and not own_rows else tensor.shape
                    masks[windows.get(run.layer)] = product(rows) * ITEM_BYTES[tensor.dtype]
    return total(masks.values())
