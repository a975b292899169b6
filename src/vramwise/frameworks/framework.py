"""The record of a framework: what it does that another does not, each fact once.

What a record leaves out is as in a loop of torch alone around classes of its own. A fact that depends on settings is a
`Rule`. Sources stand beside each record's facts; versions are those of the record where no other is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal

from vramwise.frameworks.defaults import Default
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.scenario import TrainSettings

Rule = Callable[[TrainSettings], bool]
AttentionRule = Callable[[TrainSettings, TrainSettings, Model], str]
"""The attention that runs, of the settings as stated and as decided, and the model."""


def never(train: TrainSettings) -> bool:
    """A rule that holds under no settings."""
    return False


def no_tokens(train: TrainSettings, model: Model) -> int:
    """No number of tokens changes anything."""
    return 0


@record
class RotaryCache:
    """Cosines and sines of all positions in fp32: one table, or one in every layer.

    `columns`: values of a position for each rotary column.
    """

    columns: int
    in_every_layer: bool


def no_rotary_cache(train: TrainSettings, model: Model) -> RotaryCache | None:
    """Angles are made anew from the positions of a batch."""
    return None


def as_asked(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """The attention of classes that have every kind."""
    return train.attention


def no_attention_note(asked: TrainSettings, train: TrainSettings, model_type: str) -> str:
    """No remark on the attention that runs."""
    return ""


def no_notes(train: TrainSettings) -> tuple[str, ...]:
    """No sentence beside an answer's own."""
    return ()


def no_version(train: TrainSettings) -> tuple[int, ...]:
    """No version that would matter."""
    return ()


def always(train: TrainSettings) -> bool:
    """A rule that holds under all settings."""
    return True


@record
class Command:
    """What starts a framework on a command line, and who reads the line."""

    reader: str
    """Module of interop/launch."""
    program: str = ""
    trains: tuple[str, ...] = ()
    """First words of the program with which it trains, or does what else its reader knows; none: it only trains."""
    module: str = ""
    """Beginning of what `python -m` runs instead."""
    example: str = ""
    """The program as a person would type it."""


@record(kw_only=True)
class GradientRules:
    """How gradients come, stay and are reduced; settings make a life of it (training/recipe/gradient_life.py)."""

    main_buffer: bool = False
    """fp32 gradients of all weights lie in one buffer from the start: products add to it, and it is what is reduced."""
    deferred: Rule = never
    """FSDP reduces gradients in a step's last micro-batch alone and keeps them whole until then."""
    deferred_with_frozen: bool = False
    """What so stays whole is whole flat parameters in the weights' dtype, their frozen values included."""
    reduced_in_compute_dtype: bool = False
    """FSDP 2 reduces gradients in the dtype that is computed in, not in their own."""


@record(kw_only=True)
class Casts:
    """Who casts, and what of a model is in which dtype."""

    autocast: Literal["never", "mixed", "quantized", "16-bit"] = "mixed"
    """What runs under autocast: nothing (weights are cast whole), precisions that are mixed, 16-bit ones over a
    quantized base too, or all of them."""
    loads_narrow: bool = False
    """Frozen weights are loaded in the dtype that is computed in, under autocast too, but for FSDP."""
    widens_before_zero: bool = False
    """Weights that train are loaded onto the GPU in 16 bits and become fp32 there, one by one; stages 1 and 2 of ZeRO
    narrow them again."""
    fp8_weights: str | None = None
    """dtype of weights whose products are in 8 bits, where no other is stated; None: as wide as without."""
    fp8_recipe: str | None = None
    """How 8-bit values are scaled unasked; None: Transformer Engine's own choice by GPU."""
    emulates_bf16: Rule = never
    """It takes bf16 unasked wherever torch says that the card has it, which counts cards that emulate it."""
    caches_8_bit_weights: bool = False
    """8-bit copies of weights stay from step to step, and are not made anew in each product."""


@record(kw_only=True)
class Preference:
    """How a trainer of preferences works out log-probabilities (training/activations/preference.py)."""

    tiles: bool = False
    """A tile of positions at a time through the output layer, so that all logits never exist."""
    of_all: bool = False
    """By a softmax of all logits at once, and not row by row."""
    copies: bool = False
    """On contiguous copies of all positions but the last."""
    frames_stay: bool = False
    """One function asks policy and reference: both logits have names in it until the end."""
    names_logits: bool = False
    """A variable names the policy's logits, and so their graph, while the reference is asked."""
    picks: bool = False
    """The answers' rows are picked out for the mean of their logits."""
    with_cross_entropy: bool = False
    """The cross entropy of the chosen answers is worked out too."""
    upcasts: bool = False
    """It makes the logits fp32 itself, where the model did not."""


@record(kw_only=True)
class Loss:
    """The ways to the loss, where the framework has its own."""

    chunks: Literal["upcast", "as they are", "tiles", "rows"] = "upcast"
    """What `loss = chunked` is: logits of which an eighth at a time becomes fp32, 128 positions at a time in their own
    dtype, tiles of positions that are made again in backward, so that all logits never exist, or rows of logits that
    stay, whose log-probabilities are made again in backward."""
    chunks_with_head: Rule = never
    """Chunks go through the output layer too, and backward through both, while forward runs."""
    compiled_chunks: bool = False
    """With compile a chunk's upcast and loss are one kernel."""
    one_kernel: bool = False
    """The standard loss is one kernel over the logits, its gradient beside them."""
    compiled: Rule = never
    """With compile the loss is compiled too: one kernel over the logits, its gradient beside them."""
    fused_is_compiled: bool = False
    """`loss = fused` is that compiled loss."""
    softmax_in_place: bool = False
    """The vocab-parallel loss works in place on one fp32 copy of the logits."""
    fused_linear_is_ligers: bool = False
    """`loss = fused-linear` is Liger's kernel unasked."""
    fused_linear_is_own: bool = False
    """`loss = fused-linear` is the framework's own, whatever kernels are asked for."""
    logits_below: Callable[[TrainSettings, Model], int] = no_tokens
    """A micro-batch of fewer tokens than this has its logits made, although the loss is fused-linear."""
    preference: Callable[[TrainSettings], Preference] | None = None
    """What `loss = preference` is at the version; None: it has no trainer of preferences, or one not described."""


@record(kw_only=True)
class Quantizing:
    """What becomes of a quantized base."""

    experts_in: tuple[str, ...] = ()
    """Formats (their beginnings) in which experts that are one parameter are quantized unasked."""
    narrowed_again: tuple[str, ...] = ()
    """Parts that go back to 16 bits after peft's k-bit preparation."""
    prepares_quantized_experts: bool = True
    """peft's k-bit preparation runs where experts that are one parameter are quantized, too."""
    experts_again: bool = False
    """Backward dequantizes such experts again; else autograd keeps forward's copy."""
    head: bool = False
    """The output layer is quantized with the other linear layers."""
    loads_whole: Rule = never
    """Every GPU has the whole quantized model before FSDP cuts it, unless told otherwise."""
    keeps_originals: bool = True
    """A weight that trains beside adapters is a copy and the frozen one stays: peft's `modules_to_save`."""
    copies: Literal["as they are", "fp32 under autocast", "without fp16"] = "as they are"
    """In which dtype weights train whole beside adapters: in theirs, in fp32 where it is fp16 or autocast runs."""


@record(kw_only=True)
class Peft:
    """How peft is asked for adapters."""

    version: tuple[int, ...] = (0, 21)
    """The newest that the framework's package takes; else the one described."""
    names_linear_layers: bool = False
    """`all-linear` is a list of the linear layers' names that the framework makes; else peft resolves it."""
    ignores_dropout: bool = False
    """Adapters on whole parameters go without the dropout that peft refuses there."""


@record(kw_only=True)
class Sharding:
    """How layers, weights and sequences are cut."""

    outer_units: Rule = never
    """FSDP 2 makes units of embedding and output layer where no weight is tied; else both are in the root unit."""
    leaves_weights_whole: bool = False
    """FSDP's shard-grad-op cuts gradients and states alone; else weights too, which stay gathered from their forward to
    their backward pass, as torch's SHARD_GRAD_OP has it (torch 2.13 distributed/fsdp/api.py ShardingStrategy)."""
    last_unit_stays: Rule = never
    """FSDP 2 does not free the last unit (the output layer's, else the last layer's) after forward."""
    loss_after_root: bool = False
    """The loss is worked out when the root unit's forward is over."""
    frees_root: bool = False
    """FSDP 2 is asked in so many words to free the root unit after its forward, which torch does since 2.8."""
    sequence_with_tensors: bool = False
    """Tensor parallelism splits norms and residuals along the sequence unasked."""
    shares_key_heads: Rule = never
    """Several ranks of tensor parallelism may share a head of keys and values."""
    regathers_sequences: bool = False
    """Under sequence parallelism backward gathers a product's input again and does not keep it whole."""
    whole_towers: bool = False
    """What is not text is whole on every rank of tensor parallelism, whatever plan transformers' class has for it."""
    context_parallel_kind: Literal["ring", "ulysses"] = "ring"
    """How context parallelism shares attention where nobody says so."""
    ring: Literal["torch", "transformer-engine", "uncounted"] = "torch"
    """Whose ring attention that is."""
    even_chunks: bool = False
    """Chunks of an interleaved pipeline have the same number of layers, embedding and loss counted or not."""
    cuts: tuple[str, ...] = ()
    """Dimensions of parallelism beside data that its own recipes offer: `tensor`, `pipeline`, `context`, `expert`."""
    shares: Literal["fsdp", "zero", "tensors", "nothing"] = "fsdp"
    """How several GPUs are best made to share the states."""
    takes_zero: bool = False
    """DeepSpeed's stages can be asked for."""
    offloads: bool = True
    """States can move to host memory."""
    offloads_norms: bool = False
    """Where activations do, it is all that forward keeps but what the output layer's product reads."""


@record(kw_only=True)
class Framework:
    """One training framework."""

    name: str
    """As a scenario names it."""
    title: str
    """As its users call it."""
    package: str
    """The package whose version a bare number in `framework_version` is."""

    newest: str = ""
    """The version of the package that is described; empty where nobody stated it."""

    commands: tuple[Command, ...] = ()
    """What starts it; a script of one's own is read as Trainer's."""
    image: str = ""
    """The container's image that its makers publish for NVIDIA's cards, with the tag of the newest version."""
    image_runs: str = ""
    """The tool in it whose configuration starts a training; empty: the framework itself."""
    image_lacks: Mapping[str, str] = field(default_factory=dict)
    """Packages that are not in it, and the key of a scenario that asks for them."""
    defaults: tuple[Default, ...] = ()
    """What it does where a scenario says nothing."""
    as_run: Callable[[TrainSettings], str] | None = None
    """The program, version and flags whose defaults these are; None: title and version say it."""

    trainer: bool = False
    """transformers' Trainer runs the loop, through accelerate: autocast, fp32 copies of outputs, Trainer's losses."""
    batches: Literal["full", "padded", "conversations"] = "full"
    """Samples are as long as the sequence, padded to a batch's longest, or conversations of any length up to it."""
    zero_init: bool = False
    """Models are made when TrainingArguments exist already, so under ZeRO-3 inside of `zero.Init`; else the script
    decides."""
    longest_first: Rule = never
    """The longest sample is in a micro-batch that no earlier one left gradients for."""
    names_logits: Rule = never
    """The loop's variables name the logits, and so their graph, until the next ones are there, unless
    `train.keeps_outputs` says otherwise."""
    caches_in_training: Rule = never
    """So do the passes of a step whose layers are not checkpointed; the outputs that the loop names refer to it."""
    caches_in_evaluation: Rule = never
    """An evaluation's pass fills a cache of keys and values: nothing turns off what models' configs ask for."""
    asks_for_reentry: Rule = never
    """Full checkpointing is torch's reentrant kind, whatever transformers' version has by default."""
    states_from_start: bool = False
    """The optimizer's states exist before its first step."""
    own_optimizer: bool = False
    """Optimizers are the framework's own: no other implementation or package can be asked for."""

    of_types: Mapping[str, Framework] = field(default_factory=dict)
    """Types of models that it has classes of its own for, beside those that it takes from elsewhere, and the record
    that holds for them."""
    classes: Literal["as they are", "patched", "own"] = "own"
    """transformers' classes run as they are, with another attention in place of theirs, or others do."""
    exact: bool = False
    """Its operations are those that are described, one by one; else its own kernels may keep less or more."""
    warms_up: Rule = always
    """Where its classes are transformers', from_pretrained warms torch's allocator up before it loads a model."""
    makes_speech: bool = True
    """What speaks is part of a model that also speaks, and not left out where the model is made."""
    own_layers: str = ""
    """The record in vramwise.kernels that describes its layers, for the types that it has classes for."""
    own_layers_version: Callable[[TrainSettings], tuple[int, ...]] = no_version
    """The version whose layers run."""
    rotary_cache: Callable[[TrainSettings, Model], RotaryCache | None] = no_rotary_cache
    """What its own classes keep of the angles of all positions."""
    attention: AttentionRule = as_asked
    """The attention that runs; raises `ScenarioError` where it is refused."""
    attention_note: Callable[[TrainSettings, TrainSettings, str], str] = no_attention_note
    """What a reader should know of it: of the settings as asked and as decided, and the model's type."""
    kernels: tuple[str, ...] = ()
    """Kernel libraries that it always runs."""
    swaps_in: Mapping[str, str] = field(default_factory=dict)
    """Kernel libraries that it puts in by a table of its own, and the record of that."""
    fuses_norms: bool = False
    """A norm runs together with the column-parallel product behind it."""
    brings_masks: bool = False
    """The batch itself brings the mask of packed samples."""
    replaces_flash: bool = False
    """Where flash-attention does not run on the card, another kernel does unasked."""

    gradients: GradientRules = GradientRules()
    casts: Casts = Casts()
    loss: Loss = Loss()
    quantizing: Quantizing = Quantizing()
    peft: Peft | None = Peft()
    """None: adapters are the framework's own."""
    sharding: Sharding = Sharding()

    notes: Callable[[TrainSettings], tuple[str, ...]] = no_notes
    """Sentences that belong to its answers."""
    selects_all_products: Rule = never
    """Selective checkpointing of operations keeps biased and batched products too, all of them; else unbiased ones
    alone. Of these it is every second either way."""
    selects_routers: Rule = always
    """A router's product counts among these."""
    selects_exchanges: Rule = never
    """What an all-to-all of experts' tokens brings is kept, too."""
    checkpointing_note: str = ""
    """What belongs behind the sentence on full checkpointing."""
    counts_anew: bool = False
    """It resets torch's peaks once the model is loaded, so that its logs of memory are those of steps."""
    reserved_ratio: str = ""
    """Ending of the calibrated ratio of reserved over allocated memory; empty: by what is sharded."""
    replayed: bool = True
    """The allocator can be played through a step: everything that allocates is described."""
    measured: bool = False
    """`vramwise measure` runs it."""

    @property
    def shards_by_itself(self) -> bool:
        """Whether several GPUs share the states where nobody says so."""
        return any(default.key == "fsdp" for default in self.defaults)
