"""Attention and rotary positions as transformers 5.23 runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, Variants, lowering
from vramwise.records import record

Rotation = Callable[[Lowering, Tensor, Tensor, Tensor], Tensor]
ROTATIONS: Variants[Rotation] = Variants("rotary positions")
"""(run, x, cos, sin) -> x turned."""

AttentionPath = Callable[..., Tensor]
"""(run, op, q, k, v, *others) -> mixed values."""
Kernel = Literal["eager", "sdpa", "flash"]


class AttentionStyle:
    """How a class of transformers runs attention: the code path of its own for a kernel, where it has one.

    `ordinary`: for other kernels it runs as most classes do. `has_float_mask`: it is handed a mask of floats. There is
    one of a name: a description that was kept and is read again has the same one.
    """

    def __init__(self, name: str, *, ordinary: bool = False, has_float_mask: bool = False) -> None:
        self.name = name
        self.ordinary = ordinary
        self.has_float_mask = has_float_mask
        self.paths: dict[Kernel, AttentionPath] = {}
        if _STYLES.setdefault(name, self) is not self:
            raise ValueError(f"two styles of attention are called {name}")

    def __reduce__(self) -> tuple[Callable[[str], AttentionStyle], tuple[str]]:
        return style_named, (self.name,)

    def __repr__(self) -> str:
        return f"AttentionStyle({self.name})"

    def path(self, kernel: Kernel) -> Callable[[AttentionPath], AttentionPath]:
        """Registers how it runs with a kernel."""

        def register(path: AttentionPath) -> AttentionPath:
            self.paths[kernel] = path
            return path

        return register


_STYLES: dict[str, AttentionStyle] = {}


def style_named(name: str) -> AttentionStyle:
    """The style of a name. KeyError where no module that was imported has it."""
    return _STYLES[name]


LLAMA = AttentionStyle("llama", ordinary=True)
"""Softmax asks for fp32 and its result is cast back."""
PLAIN = AttentionStyle("plain", ordinary=True)
"""Softmax in the dtype of the scores."""
GPT2 = AttentionStyle("gpt2", ordinary=True)
"""Softmax in the dtype of the scores, cast to that of the values."""
GPT2_UPCAST = AttentionStyle("gpt2 with reorder_and_upcast_attn")


@record(kw_only=True, eq=False)
class HeadedAttention(Operation):
    """Attention of so many heads, in whatever layout its values come."""

    num_heads: int


@record(kw_only=True, eq=False)
class AnyAttention(HeadedAttention):
    """Queries, keys and values, heads first, to mixed values; `style` names the class's own code path."""

    num_key_value_heads: int
    causal: bool = True
    window: int | None = None
    dropout: float = 0.0
    style: AttentionStyle = LLAMA
    latent: bool = False
    masked: bool = False
    block_mask: bool = False
    softcap: bool = False

    @property
    def has_float_mask(self) -> bool:
        """Whether it is handed a mask of floats: biases of positions, or a mask that is trained."""
        return False


@record(kw_only=True, eq=False)
class AnyRotary(Operation):
    """Turns columns by the position: `rotary_dim` of each head, 0 for all of them; tables are shared by name."""

    rotary_dim: int = 0
    table: str = "default"


@record(kw_only=True, eq=False)
class Rotary(AnyRotary):
    style: str


@lowering(Rotary)
def rotary(run: Lowering, op: Rotary, *turned: Tensor) -> tuple[Tensor, ...]:
    cos, sin = tables_of(run, op, turned[0].dtype)
    rotate = ROTATIONS[op.style]
    return tuple(_turned_in_part(run, rotate, x, op.rotary_dim, cos, sin) for x in turned)


def tables_of(run: Lowering, op: Rotary, dtype: str) -> tuple[Tensor, Tensor]:
    """cos and sin as an operation reads them: those of all layers, copies of them, or its own in the values' dtype."""
    width = op.rotary_dim
    if op.table == "own":
        cos, sin = (run.tape.new((1, run.sequence, width), dtype, op=fn) for fn in ("cos", "sin"))
    else:
        cos, sin = rotary_table(run, op.table, width)
    if op.style in ("pairs", "pairs_joined", "pairs_widened") and not op.table.startswith("rows"):
        return _doubled(run, cos), _doubled(run, sin)
    if op.style == "half_copied":
        return run.tape.to(cos, "fp32"), run.tape.to(sin, "fp32")
    return cos, sin


def rotary_table(run: Lowering, name: str, width: int) -> tuple[Tensor, ...]:
    """cos and sin of shape (1, sequence, width) in the hidden states' dtype, a parameter's or fp32, made once."""
    if name == "own":  # every layer makes one from its values
        own = run.execution.autocast or run.execution.param_dtype
        return tuple(run.tape.new((1, run.sequence, width), own, op=fn) for fn in ("cos", "sin"))
    key = f"{name}/{width}"
    if key not in run.tables:
        # Multimodal rotary positions and those of packed samples come for every row, and so do their tables.
        by_row = "rows" in name.split() or run.execution.positions_by_row
        shape = (run.batch if by_row else 1, run.sequence, width)
        kept = run.execution.param_dtype if name == "parameter" else run.hidden_dtype
        dtype = "fp32" if "fp32" in name.split() else kept
        run.tables[key] = tuple(run.tape.new(shape, dtype, op=fn) for fn in ("cos", "sin"))
    return run.tables[key]


def _turned_in_part(run: Lowering, rotate: Rotation, x: Tensor, width: int, cos: Tensor, sin: Tensor) -> Tensor:
    if x.shape[-1] == width:
        return rotate(run, x, cos, sin)
    head_dim = x.shape[-1]
    turned, passed = run.tape.split(x, [width, head_dim - width])
    return run.tape.cat([rotate(run, turned, cos, sin), passed])


@ROTATIONS.named("half")
def rotate_half(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x·cos + rotate_half(x)·sin."""
    tape = run.tape
    cos, sin = tape.unsqueeze(cos, 1), tape.unsqueeze(sin, 1)
    half = x.shape[-1] // 2
    first, second = tape.narrow(x, -1, half), tape.narrow(x, -1, half)
    turned = tape.cat([tape.unary("neg", second), first])
    return tape.add(tape.mul(x, cos), tape.mul(turned, sin))


@ROTATIONS.named("half_joined")
def _rotate_half_joined(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `_rotate_half`, then joined with an empty rest: a row-major copy (GPT-NeoX with rotary_pct = 1)."""
    return run.tape.cat([rotate_half(run, x, cos, sin)])


@ROTATIONS.named("half_fp32")
def _rotate_half_fp32(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `_rotate_half` on fp32 tables, cast back (OLMo)."""
    return run.tape.to(rotate_half(run, x, cos, sin), x.dtype)


def _doubled(run: Lowering, table: Tensor) -> Tensor:
    """The first half of a table with every column twice: a copy that each layer makes for itself (GLM, Helium)."""
    tape, half = run.tape, table.shape[-1] // 2
    half_table = tape.unsqueeze(tape.narrow(table, -1, half), -1)
    return tape.reshape(tape.expand(half_table, *half_table.shape[:-1], 2), *table.shape)


@ROTATIONS.named("pairs")
def _rotate_pairs(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x·cos + (−odd, even)·sin with even and odd elements interleaved."""
    tape = run.tape
    cos, sin = tape.unsqueeze(cos, 1), tape.unsqueeze(sin, 1)
    turned = turned_neighbours(run, x)
    return tape.add(tape.mul(x, cos), tape.mul(turned, sin))


def turned_neighbours(run: Lowering, x: Tensor) -> Tensor:
    """(−odd, even): neighbours change places and one its sign."""
    even, odd = run.tape.step(x, -1, 2), run.tape.step(x, -1, 2)
    return run.tape.reshape(run.tape.stack([run.tape.unary("neg", odd), even], -1), *x.shape)


@ROTATIONS.named("pairs_joined")
def _rotate_pairs_joined(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `_rotate_pairs`, then joined with an empty rest: a row-major copy (GLM turned as a whole)."""
    return run.tape.cat([_rotate_pairs(run, x, cos, sin)])


@ROTATIONS.named("pairs_fp32")
def _rotate_pairs_fp32(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `_rotate_pairs` on an fp32 copy, cast back (Cohere)."""
    return run.tape.to(_rotate_pairs(run, run.tape.to(x, "fp32"), cos, sin), x.dtype)


@ROTATIONS.named("pairs_widened")
def _rotate_pairs_widened(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `_rotate_pairs` on fp32 tables, both factors widened to fp32 and the sum cast back (ERNIE 4.5)."""
    tape = run.tape
    cos, sin = tape.unsqueeze(cos, 1), tape.unsqueeze(sin, 1)
    turned = tape.to(turned_neighbours(run, x), "fp32")
    return tape.to(tape.add(tape.mul(tape.to(x, "fp32"), cos), tape.mul(turned, sin)), x.dtype)


@ROTATIONS.named("interleaved_cat")
def _rotate_interleaved_cat(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """DeepSeek's interleaved pairs: even and odd elements rotated apart, then concatenated."""
    tape = run.tape
    half = cos.shape[-1] // 2
    cos, sin = (tape.unsqueeze(tape.narrow(table, -1, half), 1) for table in (cos, sin))
    even, odd = tape.step(x, -1, 2), tape.step(x, -1, 2)
    left = tape.add(tape.mul(even, cos), tape.mul(odd, sin))
    right = tape.add(tape.mul(odd, cos), tape.mul(even, sin))
    return tape.cat([left, right])


@ROTATIONS.named("interleaved_cat_fp32")
def _rotate_interleaved_cat_fp32(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `_rotate_interleaved_cat`, cast back from the tables' dtype (Dots 3)."""
    return run.tape.to(_rotate_interleaved_cat(run, x, cos, sin), x.dtype)


class ScaleByPosition(Operation):
    __slots__ = ()


@lowering(ScaleByPosition)
def scale_by_position(run: Lowering, op: ScaleByPosition, q: Tensor) -> Tensor:
    """Queries times a factor for each position, which every layer makes anew (`get_llama_4_attn_scale`)."""
    return run.tape.mul(q, run.tape.new((1, 1, run.sequence, 1), q.dtype, op="_to_copy"))


# -- attention -----------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class Attention(AnyAttention):
    eager_only: bool = False
    sdpa_by_version: str = ""
    has_flash: bool = False
    buffer_rows: int = 0
    alibi: bool = False
    cross: bool = False
    masks_one_token: bool = False
    compared: tuple[str, ...] = ()
    mask: str = ""

    @property
    def has_float_mask(self) -> bool:
        return self.alibi or self.style.has_float_mask


@lowering(Attention)
def attention(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
    """(batch, heads, sequence, d) -> (batch, sequence, heads·d). Raises UndescribedOperationError."""
    if op.causal and not op.latent:
        k, v = run.through_cache(2, k, v)
    chosen = run.execution.attention
    flash = "flash" in (chosen, run.execution.sdpa_backend)
    has_sdpa = not op.eager_only or op.sdpa_by_version in run.execution.types_gaining_sdpa
    if not has_sdpa and not (flash and op.has_flash):
        chosen = "eager"
    styled = op.style.paths.get(chosen)
    if styled is not None:
        out = styled(run, op, q, k, v, *others)
    elif not op.style.ordinary:
        raise UndescribedOperationError(f"attention of the style {op.style.name} is not described")
    else:
        out = eager_attention(run, op, q, k, v) if chosen == "eager" else sdpa_attention(run, op, q, k, v)
    return run.tape.contiguous(run.tape.reshape(out, *out.shape[:2], -1))


def attention_dropout(run: Lowering, probability: float) -> float:
    """The probability with which attention drops, 0 where the model is not in training."""
    return probability if run.execution.dropout else 0.0


def needs_mask(run: Lowering, op: AnyAttention) -> bool:
    """SDPA gets a mask only for padding or a window shorter than the sequence; flash attention never."""
    if run.execution.sdpa_backend == "flash":
        return False
    window = op.window
    seen = run.images_see_each_other if run.modality == "text" else ""
    always = padded(run) or _holds_documents(run, op) or seen == "all" or (seen and window) or op.masked
    always = always or _always_masked(run, op)
    return bool(always) or window in run.windows_reached


def padded(run: Lowering) -> bool:
    """Whether a padding mask is passed: images have none."""
    return run.execution.padding and run.modality == "text"


def _always_masked(run: Lowering, op: AnyAttention) -> bool:
    return run.execution.always_masked and run.modality == "text" and op.causal


def _holds_documents(run: Lowering, op: AnyAttention) -> bool:
    return run.execution.documents and run.modality == "text" and bool(op.causal)


def repeat_kv(run: Lowering, op: AnyAttention, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values copied to every head of queries that reads them."""
    tape, times = run.tape, op.num_heads // op.num_key_value_heads
    return tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)


def eager_attention(run: Lowering, op: AnyAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tape = run.tape
    k, v = repeat_kv(run, op, k, v)
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    if op.softcap:
        scores = tape.scale(tape.unary("tanh", tape.scale(scores)))
    if op.causal or padded(run):
        # The mask has the dtype of the embeddings: under autocast it makes the scores fp32.
        mask = tape.new((run.batch, 1, q.shape[2], k.shape[2]), run.hidden_dtype, op="mask")
        scores = tape.add(scores, _given_mask(run) if run.execution.mask_form == "given" else mask)
    if op.style is LLAMA:
        weights = tape.to(tape.softmax(scores, "fp32"), q.dtype)
        tape.record("locals", [scores], [])  # the name keeps the scores until it is bound anew
    elif op.style is PLAIN:
        weights = tape.softmax(scores)
    else:
        weights = tape.to(tape.softmax(scores), v.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    run.named_in[""].append(weights)
    out = tape.transpose(tape.matmul(weights, v), 1, 2)
    return tape.contiguous(out) if op.style is LLAMA else out


def _mask_for_sdpa(run: Lowering, op: AnyAttention, q: Tensor, k: Tensor) -> Tensor | None:
    tape, (rows, columns), form = run.tape, (q.shape[2], k.shape[2]), run.execution.mask_form
    if op.block_mask:
        return tape.new((run.batch, q.shape[1], rows, columns), q.dtype, op="mask")
    if not needs_mask(run, op):
        return None
    if form == "bool" or run.modality != "text":
        return tape.new((run.batch, 1, rows, columns), "bool", op="mask")
    if form == "given":
        return _given_mask(run)
    if _always_masked(run, op) and op.window is not None:  # each such layer cuts the mask of all to its window
        return tape.new((run.batch, 1, rows, columns), run.hidden_dtype, op="where")
    key = f"mask/{op.window}/{op.causal}/{rows}/{columns}"
    if key not in run.tables:
        run.tables[key] = (tape.new((run.batch, 1, rows, columns), run.hidden_dtype, op="mask"),)
    return run.tables[key][0]


def _given_mask(run: Lowering) -> Tensor:
    """The mask that comes with the batch, in the dtype of products, for layers of every kind."""
    if "given mask" not in run.tables:
        shape, dtype = (run.batch, 1, run.sequence, run.sequence), run.execution.autocast or run.hidden_dtype
        run.tables["given mask"] = (run.tape.new(shape, dtype, kind="input", op="mask"),)
    return run.tables["given mask"][0]


def sdpa_attention(run: Lowering, op: AnyAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tape, mask = run.tape, _mask_for_sdpa(run, op, q, k)
    times = op.num_heads // op.num_key_value_heads
    native_groups = packed = False
    if times > 1:
        width = k.shape[-1]
        assert isinstance(width, int)
        native_groups = mask is None and width == v.shape[-1] and width <= 256
        native_groups = native_groups and not (run.execution.flash_repeats_heads or run.execution.sdpa_repeats_heads)
        packed = not native_groups and run.sequence == 1
        if packed:  # `pack_gqa`: the heads of a group stand in for tokens
            q = tape.reshape(q, run.batch, k.shape[1], times, width)
        elif not native_groups:
            k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
    if run.execution.sdpa_backend == "flash" and padded(run) and q.shape[2] == k.shape[2]:
        return tape.flash_without_padding(q, k, v, run.execution.padding_share)
    if run.execution.sdpa_copies_inputs and run.modality == "text":
        q, k, v = (tape.contiguous(tensor) for tensor in (q, k, v))
    out = tape.sdpa(
        q, k, v, mask=mask, causal=mask is None and op.causal, dropout=attention_dropout(run, op.dropout),
        enable_gqa=native_groups, backend=run.execution.sdpa_backend,
    )  # fmt: skip
    if packed:
        out = tape.reshape(out, run.batch, -1, run.sequence, v.shape[-1])
    return tape.contiguous(tape.transpose(out, 1, 2))
