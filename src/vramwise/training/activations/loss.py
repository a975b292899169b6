"""The way from hidden states to the loss, where it is not the library's own cross entropy.

shifted       the library's loss before transformers 4.50: a shifted copy of fp32 logits     loss/loss_utils.py
fused         one kernel over materialized logits, its gradient in their place          unsloth, Liger CE
one kernel    llm-foundry's default, flash-attn's: its gradient beside the logits     models/mpt/modeling_mpt.py
              compiled (torchtitan): the same of bf16 logits, and one statistic a row     components/loss.py
fused-linear  output layer and loss a tile at a time; gradients are made in forward          Liger 0.5 FLCE
chunked       logits exist, the loss upcasts an eighth at a time           torchtune 0.6, torchtitan before April 2026
              torchtitan since: output layer, loss and backward of an eighth, all in forward   components/loss.py
              torchtune with compile: upcast and loss of a chunk are one kernel     training/_compile.py compile_loss
              litgpt: 128 positions at a time, in the logits' dtype; RL: tiles of positions made again in backward
              ms-swift: rows of logits that stay; their log-probabilities are made again in backward
vocab-parallel  logits and loss divided over tensor parallel ranks
              Megatron: fp32 copy that becomes softmax, then gradient   core/tensor_parallel/cross_entropy.py
              Megatron's fused loss (compiled): backward works on one more copy   core/fusions/fused_cross_entropy.py
              else torch's loss_parallel on DTensors           torch 2.13 distributed/tensor/parallel/loss.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vramwise.errors import ScenarioError
from vramwise.frameworks import framework_named, framework_of
from vramwise.frameworks.versions import library_version, liger_version
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import ITEM_BYTES, Storage, Tensor
from vramwise.models.execution import loss_of
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, Forward
from vramwise.models.type_facts import has_fact
from vramwise.scenario.names import FRAMEWORKS
from vramwise.training.activations.ways_to_loss import (
    COMPILED_CHUNKS,
    KERNEL,
    by_rows,
    chunked,
    compiled_softmax,
    fused,
    fused_linear,
    gathered,
    in_one_kernel,
    looped,
    loss_parallel,
    plain,
    shifted,
    softmax_in_place,
    tiled,
)
from vramwise.training.recipe.settings import execution, keeps_outputs, loss_in_forward, sharded
from vramwise.training.resolved import ResolvedTrain

LABELS_SHIFTED_SINCE = (4, 50)  # transformers loss/loss_utils.py ForCausalLMLoss pads labels instead of slicing logits
LOSS_FUNCTION_SINCE = (4, 46)  # before, the modeling file upcasts `logits` in its own frame

LIGER_SUMS_IN_FP32_SINCE = (0, 6, 2)
LIGER_SUMS_IN_PLACE_SINCE = (0, 8, 3)
_OVER_ROWS_OF_LOGITS = frozenset({"causal-lm", "masked-lm", "shifted-lm", "fp32-lm", "seq2seq-lm"})


def upcasts(train: ResolvedTrain, model: Model) -> bool:
    """Whether the library's way to the loss makes fp32 logits of its own."""
    if train.loss_upcast is not None:
        return train.loss_upcast
    if not framework_of(train).trainer:
        return False
    return not has_fact("transformers", "loss_of_narrow_logits", model.config.model_type, library_version(train))


def is_compiled(train: ResolvedTrain) -> bool:
    """Whether a loss over whole logits, or over each rank's share of them, is compiled.

    transformers' classes work it out in their own forward, which is compiled as a whole (4.46 to 5.23; Trainer's
    `torch_compile` is accelerate's dynamo plug-in around the model).
    """
    if not train.compile or train.loss not in ("standard", "vocab-parallel"):
        return False
    own = framework_of(train)
    inside = own.classes == "as they are" and train.tensor_parallel_size == 1
    return "loss" in train.compiled if train.compiled else inside or own.loss.compiled(train)


def is_one_kernel(train: ResolvedTrain) -> bool:
    """Whether the loss has no place where logits become fp32, or not."""
    own = framework_of(train).loss
    tiles = train.loss == "chunked" and (own.chunks in ("tiles", "rows") or (own.compiled_chunks and train.compile))
    standard = train.loss == "standard" and own.one_kernel
    in_place = train.loss == "vocab-parallel" and own.softmax_in_place
    return train.loss == "fused-linear" or tiles or standard or in_place or is_compiled(train)


def shifts_logits(train: ResolvedTrain) -> bool:
    """Whether the library's loss copies all logits but the last position's."""
    return framework_of(train).trainer and library_version(train) < LABELS_SHIFTED_SINCE


def with_loss(forward: Forward, train: ResolvedTrain, model: Model) -> Forward:
    """The forward pass with the scenario's way to the loss. Raises ScenarioError."""
    if not forward.runs or forward.runs[-1].name != "loss":
        return forward
    loss = forward.runs[-1]
    logits = loss.incoming[0]
    variant, own = train.loss, framework_of(train).loss
    if train.loss_upcast is False:
        forward = _without_fp32_outputs(forward)
        loss = forward.runs[-1]
        logits = loss.incoming[0]
    if variant == "preference":
        return _of_preferences(forward, train, model)
    own_runs = train.loss_upcast is None and "loss" not in train.compiled
    if own_runs and loss_of(execution(train, model).kernels) is not None:  # the framework's own
        return forward
    if variant == "chunked" and model.head == "contrastive":
        raise ScenarioError(
            "train.loss", '"chunked" cuts logits of a vocabulary; this loss has none; expected standard'
        )
    if variant == "fused-linear":
        of_liger = "liger" in train.kernels or own.fused_linear_is_ligers
        sums = of_liger and LIGER_SUMS_IN_FP32_SINCE <= liger_version(train) < LIGER_SUMS_IN_PLACE_SINCE
        return _without_logits(forward, partial(fused_linear, sums_in_fp32=sums))
    if variant == "chunked":
        if own.chunks == "as they are":
            return _replaced(forward, partial(chunked, logits=logits, upcast=bool(train.loss_upcast)))
        if own.chunks_with_head(train):
            widened = train.loss_upcast is not False
            return _without_logits(forward, partial(looped, reduced=sharded(train), upcast=widened))
        if own.chunks == "tiles":
            return _without_logits(forward, tiled)
        if own.chunks == "rows":
            widened = execution(train, model).autocast is not None
            return _replaced(forward, partial(by_rows, logits=logits, upcast=widened))
        if own.compiled_chunks and train.compile:
            return _replaced(forward, partial(in_one_kernel, logits=logits, op=COMPILED_CHUNKS))
        return _replaced(forward, partial(chunked, logits=logits, upcast=train.loss_upcast is not False))
    if variant == "vocab-parallel" and own.softmax_in_place:
        way = compiled_softmax if is_compiled(train) else softmax_in_place
        return _replaced(forward, partial(way, logits=logits))
    over_rows = (model.loss or model.head) in _OVER_ROWS_OF_LOGITS
    if _is_of_one_graph(train) and over_rows:
        forward, logits = _without_pointwise_tail(forward)
    if (is_compiled(train) and over_rows) or (variant == "fused" and own.fused_is_compiled):
        return _replaced(forward, partial(in_one_kernel, logits=logits, op=KERNEL))
    if variant == "fused":
        as_library = partial(fused, upcast=upcasts(train, model), shift=shifts_logits(train))
        return _replaced(forward, partial(as_library, logits=logits))
    if variant == "standard" and own.one_kernel:
        return _replaced(forward, partial(in_one_kernel, logits=logits, op=KERNEL))
    if variant == "vocab-parallel" and _is_causal(loss):
        return _replaced(forward, partial(loss_parallel, logits=logits, upcast=train.loss_upcast is not False))
    if train.tensor_parallel_size > 1 and variant == "standard":
        whole = partial(gathered, logits=logits, ranks=train.tensor_parallel_size)
        return _replaced(forward, partial(whole, upcast=train.loss_upcast is not False))
    if shifts_logits(train) and _is_causal(loss):
        autocast = execution(train, model).autocast
        return _replaced(forward, partial(shifted, logits=logits, upcast=upcasts(train, model)), autocast=autocast)
    if train.loss_upcast is not None and variant == "standard" and over_rows:
        autocast = execution(train, model).autocast
        return _replaced(forward, partial(plain, logits=logits, upcast=train.loss_upcast), autocast=autocast)
    return forward


def _of_preferences(forward: Forward, train: ResolvedTrain, model: Model) -> Forward:
    """A trainer of preferences asks the model for logits, which accelerate hands out in fp32 where it autocasts."""
    from vramwise.training.activations.preference import preference

    way_at = framework_of(train).loss.preference
    if way_at is None:
        having = ", ".join(name for name in FRAMEWORKS if framework_named(name).loss.preference is not None)
        raise ScenarioError("train.loss", f'"preference" is described for {having}; expected standard, or another loss')
    if train.head == "sequence-classification" or (model.loss or model.head) not in _OVER_ROWS_OF_LOGITS:
        raise ScenarioError("train.loss", '"preference" compares answers of a vocabulary; this head has none')
    if train.tensor_parallel_size > 1:
        raise ScenarioError("train.loss", '"preference" is not described beside tensor parallelism')
    way = way_at(train)
    if way.tiles:
        return _without_logits(forward, tiled)
    autocast = execution(train, model).autocast
    as_returned = library_version(train) < LOSS_FUNCTION_SINCE and upcasts(train, model)
    upcast = way.upcasts or autocast is not None or as_returned
    logits = forward.runs[-1].incoming[0]
    asked = any(name.strip().lower().startswith("ref") for name in train.extra_models)
    worked_out = partial(preference, logits=logits, way=way, upcast=upcast, has_reference=asked)
    return _replaced(forward, worked_out, autocast=autocast)


def _is_of_one_graph(train: ResolvedTrain) -> bool:
    """Whether the output layer and the loss are compiled together, and no name is left of the logits between them."""
    whole = not train.compiled or {"model", "loss"} <= {*train.compiled}
    return is_compiled(train) and whole and loss_in_forward(train) and not keeps_outputs(train)


def _without_pointwise_tail(forward: Forward) -> tuple[Forward, Tensor]:
    """The pass whose logits are those of the last product; what follows it (a cap on them) is made in the loss's kernel
    and again in backward."""
    from vramwise.training.activations.rewriting import recounted

    *below, head, loss = forward.runs
    (logits, *others), nodes = loss.incoming, list(head.nodes)
    while nodes and nodes[-1].primitive.is_fusible and nodes[-1].outputs == (logits,):
        (logits, *_) = nodes.pop().inputs
    if len(nodes) == len(head.nodes) or others:
        return forward, loss.incoming[0]
    head = replace(head, nodes=tuple(nodes), outgoing=(logits,))
    return recounted(replace(forward, runs=(*below, head, replace(loss, incoming=(logits,))))), logits


def _is_causal(loss: BlockRun) -> bool:
    return any(node.op == "constant_pad_nd" for node in loss.nodes)


def makes_logits(train: ResolvedTrain) -> bool:
    """Whether all logits exist at once."""
    own = framework_of(train).loss
    if train.loss == "preference" and own.preference is not None:
        return not own.preference(train).tiles
    tiles = train.loss == "chunked" and (own.chunks == "tiles" or own.chunks_with_head(train))
    return train.loss != "fused-linear" and not tiles


def logits_made(train: ResolvedTrain) -> str:
    """Why a loss that makes no logits is not run in a micro-batch of this size."""
    most = f"{train.logits_below - 1:,}"
    return f"{framework_of(train).title} makes the logits of a micro-batch of up to {most} tokens"


def replacing_logits(loss: BlockRun, train: ResolvedTrain, model: Model) -> Storage | None:
    """The fp32 copy that the modeling file puts in the place of the logits, as those before transformers 4.46 did.

    It is made of the logits themselves. What autocast widens on its way into a loss without such a line is a copy of
    their rows, or of what was made of them (a classifier's).
    """
    if not (makes_logits(train) and upcasts(train, model) and library_version(train) < LOSS_FUNCTION_SINCE):
        return None
    logits = loss.incoming[0]
    copies = (node for node in loss.nodes if node.op == "_to_copy" and node.inputs[0] is logits)
    return next((node.outputs[0].storage for node in copies if node.outputs[0].dtype == "fp32"), None)


def logits_held(train: ResolvedTrain, loss: BlockRun, model: Model) -> tuple[Dim, Dim]:
    """Bytes of logits that frames keep while the loss runs (beside what the loss itself made), and after it.

    Where the fp32 copy replaced them the outputs hold that.
    """
    logits = loss.incoming[0]
    if not makes_logits(train):
        return 0, 0
    if train.loss == "preference" or (
        train.loss == "chunked" and framework_of(train).loss.chunks == "rows"
    ):  # names of a function that is over, and in it its own copies
        widened = any(node.op == "_to_copy" and node.inputs[0] is logits for node in loss.nodes)
        return (0 if widened else logits.nbytes), 0
    if replacing_logits(loss, train, model) is not None:
        return 0, logits.numel * ITEM_BYTES["fp32"]
    return logits.nbytes, logits.nbytes


# -- building ----------------------------------------------------------------------------------------------


def _recorded(
    loss: BlockRun, action: Callable[[Tape], None], incoming: tuple[Tensor, ...], autocast: str | None = None
) -> BlockRun:
    tape = Tape(autocast=autocast)
    with tape.inside("loss"):
        action(tape)
    return replace(loss, nodes=tuple(tape.nodes), saved=tuple(tape.saved.items()), incoming=incoming)


def _replaced(forward: Forward, action: Callable[[Tape], None], autocast: str | None = None) -> Forward:
    from vramwise.training.activations.rewriting import recounted

    *below, head, loss = forward.runs
    return recounted(replace(forward, runs=(*below, head, _recorded(loss, action, loss.incoming, autocast))))


def _without_fp32_outputs(forward: Forward) -> Forward:
    """The logits as the output layer makes them, where the module hands them out in fp32."""
    *below, head, loss = forward.runs
    if not head.nodes or head.nodes[-1].op != "outputs_to_fp32":
        return forward
    (logits,) = head.nodes[-1].inputs
    head = replace(head, nodes=head.nodes[:-1], outgoing=(logits,))
    return replace(forward, runs=(*below, head, replace(loss, incoming=(logits,))))


def _without_logits(forward: Forward, build: Callable[[Tape, Tensor, Tensor], None]) -> Forward:
    """Output layer and loss as one: the head ends at the hidden states that the output layer reads.

    Raises ScenarioError where no output layer makes the logits, as where images are compared with texts.
    """
    from vramwise.training.activations.rewriting import recounted

    *below, head, loss = forward.runs
    products = [i for i, node in enumerate(head.nodes) if node.primitive.product == "rows"]
    module = head.nodes[products[-1]].module if products else ""
    first = next((i for i, node in enumerate(head.nodes) if node.module == module), 0)
    group = head.nodes[first:]
    made = {id(output) for node in group for output in node.outputs}
    read = [t for node in group for t in node.inputs if id(t) not in made]
    hidden = next((t for t in read if not t.is_parameter and t.ndim > 1), None)
    weight = next((t for t in read if t.is_parameter and t.ndim == 2), None)
    if hidden is None or weight is None:
        raise ScenarioError("train.loss", "no output layer makes the logits, to run with the loss: expected standard")
    read_by_it = hidden, weight
    shortened = replace(head, nodes=head.nodes[:first], outgoing=(hidden,))
    as_one = _recorded(loss, lambda tape: build(tape, *read_by_it), (hidden,))
    return recounted(replace(forward, runs=(*below, shortened, as_one)))
