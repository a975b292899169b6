"""One forward pass as litgpt's own model code runs it, for the families that its classes cover.

litgpt 0.5 litgpt/model.py and litgpt/lora.py, the same since lit-gpt of October 2023 in what they keep: one product for
queries, keys and values, of which the values that attention reads are a view, so that all of it stays; RMS norms on an
fp32 copy; F.gelu as one operation; rotary tables in fp32; adapters on the fused product made with a grouped
convolution, whose result is scattered among zeros (`index_copy`, which keeps what it scattered).

Not described: Gemma 2 and 3, OLMo, mixtures of experts, latent attention, and what litgpt does not have (DoRA, tensor
parallelism in training); these run as transformers runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from vramwise.models.adapters import low_rank_shapes
from vramwise.models.autograd.size import Dim, axis, product
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import ITEM_BYTES, Storage, Tensor
from vramwise.models.blocks import Block, Parameter
from vramwise.models.execution import Execution
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, Forward

# Types whose layers litgpt's Block, CausalSelfAttention and its three dense MLPs are (litgpt/config.py).
_DESCRIBED = frozenset({"falcon", "gemma", "gpt_neox", "llama", "mistral", "phi", "phi3", "qwen2"})
_ROTARY_SHARES = {"gpt_neox": ("rotary_pct", 0.25), "phi": ("partial_rotary_factor", 0.5)}
_FUSED_QUERY_KEY_VALUE = frozenset({"query_key_value", "qkv_proj"})
CHUNK = 128  # positions: finetune/*.py lm_head_chunk_size
WIDENED = "outputs_to_fp32"
"""Lightning Fabric makes a module's outputs fp32 (precision plugins' `convert_output`), a chunk of logits at a time."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What litgpt's Config says of one layer."""

    hidden: int
    num_heads: int
    num_groups: int
    head_dim: int
    inner: int
    rotary: int
    is_rms: bool
    is_gated: bool
    is_parallel: bool
    shares_norm: bool
    activation: str

    @property
    def widths(self) -> tuple[int, int, int]:
        """Queries, keys, values."""
        groups = self.num_groups * self.head_dim
        return self.num_heads * self.head_dim, groups, groups


def litgpt_forward(model: Model, execution: Execution, *, batch: int, sequence: int) -> Forward | None:
    """The recorded pass, or None where litgpt's classes for this model are not described."""
    has_dora = execution.lora is not None and execution.lora.dora
    if not is_described(model) or execution.images is not None or has_dora or sequence <= 1:
        return None
    return _recorded(model, execution, batch == 1)


def is_described(model: Model) -> bool:
    """Whether litgpt's layers for this model are among those of this file."""
    return model.config.model_type in _DESCRIBED and model.head == "causal-lm"


@lru_cache(maxsize=64)
def _recorded(model: Model, execution: Execution, one_batch: bool) -> Forward:
    return _LitGpt(model, execution, 1 if one_batch else axis("batch")).forward()


def _sizes(model: Model, layer: Block) -> _Sizes:
    config = model.config
    cache = layer.caches[0]
    heads, groups, head_dim = config.size("num_attention_heads"), cache.num_key_value_heads, cache.key_head_dim
    assert groups is not None
    assert head_dim is not None
    key, default = _ROTARY_SHARES.get(config.model_type, ("partial_rotary_factor", 1.0))
    norms = [p for p in layer.parameters if p.part == "norm"]
    mlp = [p for p in layer.parameters if p.part == "mlp" and len(p.shape) == 2]
    parallel = {"falcon": True, "phi": True, "gpt_neox": config.flag("use_parallel_residual", True)}
    fused = config.model_type == "phi3"  # transformers joins gate and up; litgpt does not
    return _Sizes(
        hidden=model.hidden_size,
        num_heads=heads,
        num_groups=groups,
        head_dim=head_dim,
        inner=mlp[-1].shape[1],
        rotary=int(config.number(key, default) * head_dim),
        is_rms=not any(p.name.endswith(".bias") for p in norms),
        is_gated=len(mlp) == 3 or fused,
        is_parallel=parallel.get(config.model_type, False),
        shares_norm=sum(p.name.endswith(".weight") for p in norms) == 1,
        activation="gelu" if config.model_type == "gemma" else "silu",
    )


class _LitGpt:
    def __init__(self, model: Model, execution: Execution, batch: Dim) -> None:
        self.model, self.execution = model, execution
        self.batch, self.sequence = batch, axis("sequence")
        self.tape = Tape(device=execution.device, autocast=execution.autocast)
        self.block = model.blocks[0]
        self.used: list[tuple[Storage, int]] = []
        self.sizes = _sizes(model, next(iter(model.layers())))
        # The model's own buffers, made before the run.
        table = (1, 1, self.sequence, self.sizes.rotary)
        self.cos, self.sin = (self.tape.parameter(table, "fp32", requires_grad=False) for _ in range(2))

    def forward(self) -> Forward:
        layers = [block for block in self.model.blocks if block.layer is not None]
        outside = [block for block in self.model.blocks if block.layer is None]
        first, runs = self._run(outside[0], self._embedding), []
        x = first.outgoing[0]
        for block in layers[:2]:
            runs.append(self._run(block, partial(self._layer, x), (x,)))
            x = runs[-1].outgoing[0]
        runs += [runs[-1]] * (len(layers) - len(runs))  # from the second on they are equal
        head = self._run(outside[-1], partial(self._head, x), (x,))
        logits = head.outgoing[0]
        loss = self._run(None, partial(self._loss, logits), (logits,))
        return Forward((first, *runs, head, loss))

    def _run(self, block: Block | None, action: Callable[[], Tensor], incoming: tuple[Tensor, ...] = ()) -> BlockRun:
        tape, self.used = self.tape, []
        first_node, before = len(tape.nodes), set(tape.saved)
        if block is not None:
            self.block = block
        out = action()
        saved = tuple((storage, role) for storage, role in tape.saved.items() if storage not in before)
        name, layer = (block.name, block.layer) if block is not None else ("loss", None)
        weights = tuple(self.used)
        return BlockRun(name, layer, tuple(tape.nodes[first_node:]), saved, incoming, (out,), weights=weights)

    # -- parameters ------------------------------------------------------------------------------------------

    def _of(self, *pieces: str) -> list[Parameter]:
        """The block's parameters whose names hold one of these pieces."""
        return [p for p in self.block.parameters if any(piece in p.name for piece in pieces)]

    def _weight(self, shape: tuple[int, ...], like: Parameter) -> Tensor:
        """A tensor of litgpt's shape that trains, and is stored, as the parameter of the description does."""
        trains = self.execution.trains(like.name)
        weight = self.tape.parameter(shape, self.execution.dtype_of(like), requires_grad=trains)
        self.used.append((weight.storage, self.block.parameters.index(like)))
        return weight

    def _adapters(self, shapes: Iterable[tuple[int, ...]], like: Parameter) -> list[Tensor]:
        assert self.execution.lora is not None
        dtype, place = self.execution.lora.dtype, self.block.parameters.index(like)
        made = [self.tape.parameter(shape, dtype, requires_grad=True) for shape in shapes]
        self.used += [(weight.storage, place) for weight in made]
        return made

    def _adapted(self, parameters: list[Parameter]) -> bool:
        lora = self.execution.lora
        return lora is not None and any(lora.wraps(p) for p in parameters)

    def _linear(self, x: Tensor, width: int, parameters: list[Parameter]) -> Tensor:
        """`LoRALinear`, whose adapter is two plain products."""
        like = next(p for p in parameters if len(p.shape) == 2)
        biases = [p for p in parameters if p.name.endswith(".bias")]
        inner = x.shape[-1]
        assert isinstance(inner, int)
        with self.tape.inside(like.name.removesuffix(".weight")):
            weight = self._weight((width, inner), like)
            result = self.tape.linear(x, weight, self._weight((width,), biases[0]) if biases else None)
            if not self._adapted([like]):
                return result
            tape, lora = self.tape, self.execution.lora
            assert lora is not None
            down, up = self._adapters(low_rank_shapes(lora.rank, inner, width), like)
            low = tape.linear(tape.dropout(x, lora.dropout), down)
            return tape.add(result, tape.scale(tape.linear(low, up)))

    # -- operations ------------------------------------------------------------------------------------------

    def _embedding(self) -> Tensor:
        (like,) = self._of("embed", "wte")
        ids = self.tape.new((self.batch, self.sequence), "int64", kind="input", op="input_ids")
        x = self.tape.embedding(ids, self._weight(like.shape, like))
        return self.tape.scale(x) if self.model.config.model_type == "gemma" else x

    def _norm(self, x: Tensor, parameters: list[Parameter]) -> Tensor:
        tape = self.tape
        with tape.inside(parameters[0].module):
            weights = [self._weight(p.shape, p) for p in parameters]
            if not self.sizes.is_rms:
                return tape.layer_norm(x, weights[0], weights[1] if len(weights) > 1 else None)
            wide = tape.to(x, "fp32")
            scale = tape.unary("rsqrt", tape.scale(tape.reduce("mean", tape.mul(wide, wide)), "add_scalar"))
            return tape.to(tape.mul(tape.mul(wide, scale), tape.to(weights[0], "fp32")), x.dtype)

    def _norms(self) -> list[list[Parameter]]:
        """Weight and bias of each norm, in order."""
        modules: dict[str, list[Parameter]] = {}
        for parameter in self.block.parameters:
            if parameter.part == "norm":
                modules.setdefault(parameter.module, []).append(parameter)
        return list(modules.values())

    def _layer(self, x: Tensor) -> Tensor:
        tape, norms = self.tape, self._norms()
        normed = self._norm(x, norms[0])
        h = self._attention(normed)
        if self.sizes.is_parallel:
            other = normed if self.sizes.shares_norm else self._norm(x, norms[1])
            return tape.add(tape.add(self._mlp(other), h), x)
        x = tape.add(h, x)
        return tape.add(self._mlp(self._norm(x, norms[1])), x)

    def _attention(self, x: Tensor) -> Tensor:
        tape, sizes = self.tape, self.sizes
        own = [p for p in self.block.parameters if p.part == "attention"]
        out = [p for p in own if any(name in p.name for name in (".o_proj.", ".dense.", ".out_proj."))]
        q, k, v = tape.split(self._query_key_value(x, [p for p in own if p not in out]), list(sizes.widths))
        heads = (sizes.num_heads, sizes.num_groups, sizes.num_groups)
        q, k, v = (
            tape.transpose(tape.view(part, self.batch, self.sequence, count, sizes.head_dim), 1, 2)
            for part, count in zip((q, k, v), heads, strict=True)
        )
        q, k = self._roped(q), self._roped(k)
        times = sizes.num_heads // sizes.num_groups
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        y = tape.sdpa(q, k, v, causal=True, backend=self.execution.sdpa_backend)
        if y.shape[-1] != sizes.head_dim:  # the kernel's padding
            y = tape.narrow(y, -1, sizes.head_dim)
        y = tape.reshape(tape.transpose(y, 1, 2), self.batch, self.sequence, sizes.num_heads * sizes.head_dim)
        return self._linear(y, sizes.hidden, out)

    def _query_key_value(self, x: Tensor, parameters: list[Parameter]) -> Tensor:
        """`LoRAQKVLinear`: one product, and adapters for some of queries, keys and values in one convolution."""
        tape, sizes, lora = self.tape, self.sizes, self.execution.lora
        like = next(p for p in parameters if len(p.shape) == 2)
        biases = [p for p in parameters if p.name.endswith(".bias")]
        total = sum(sizes.widths)
        with tape.inside(like.name.rsplit(".", 2)[0] + ".qkv"):
            weight = self._weight((total, sizes.hidden), like)
            result = tape.linear(x, weight, self._weight((total,), biases[0]) if biases else None)
            widths = self._adapted_widths(parameters)
            if not widths or lora is None:
                return result
            width = sum(widths)
            shapes = low_rank_shapes(lora.rank, sizes.hidden, width, groups=len(widths))
            down, up = self._adapters(shapes, like)
            low = tape.transpose(tape.linear(tape.dropout(x, lora.dropout), down), 1, 2)
            made = tape.new((self.batch, width, self.sequence), low.dtype, requires_grad=True, op="convolution")
            tape.record("convolution", [low, up], [made], [(low, "input"), (up, "weight")])
            delta = tape.transpose(made, 1, 2)
            return tape.add(result, tape.scale(delta if width == total else self._scattered(delta, total)))

    def _adapted_widths(self, parameters: list[Parameter]) -> list[int]:
        """Widths of those of queries, keys and values that have adapters.

        On a fused projection, whose name does not tell them apart, all three where the MLP has adapters as well, else
        litgpt's defaults, queries and values.
        """
        lora = self.execution.lora
        if lora is None:
            return []
        adapted = {p.module.rpartition(".")[2] for p in parameters if lora.wraps(p)}
        if adapted & _FUSED_QUERY_KEY_VALUE:
            in_mlp = self._adapted([p for p in self.block.parameters if p.part == "mlp" and len(p.shape) == 2])
            return list(self.sizes.widths) if in_mlp else [self.sizes.widths[0], self.sizes.widths[2]]
        names = ("q_proj", "k_proj", "v_proj")
        return [width for name, width in zip(names, self.sizes.widths, strict=True) if name in adapted]

    def _scattered(self, x: Tensor, width: int) -> Tensor:
        """`new_zeros(...).index_copy_(-1, indices, x)`: keeps x, of which backward asks the shape."""
        out = self.tape.new((self.batch, self.sequence, width), x.dtype, requires_grad=True, op="index_copy_")
        self.tape.record("index_copy_", [x], [out], [(x, "source")])
        return out

    def _roped(self, x: Tensor) -> Tensor:
        tape, width = self.tape, self.sizes.rotary
        part = tape.narrow(x, -1, width)
        half = width // 2
        first, second = tape.narrow(part, -1, half), tape.narrow(part, -1, half)
        turned = tape.cat([tape.unary("neg", second), first])
        roped = tape.to(tape.add(tape.mul(part, self.cos), tape.mul(turned, self.sin)), x.dtype)
        rest = self.sizes.head_dim - width
        return tape.cat([roped, tape.narrow(x, -1, rest)] if rest else [roped])

    def _mlp(self, x: Tensor) -> Tensor:
        tape, sizes = self.tape, self.sizes
        own = [p for p in self.block.parameters if p.part == "mlp"]
        modules = list(dict.fromkeys(p.module for p in own))
        parts = [[p for p in own if p.module == module] for module in modules]
        if not sizes.is_gated:
            return self._linear(tape.unary("gelu", self._linear(x, sizes.inner, parts[0])), sizes.hidden, parts[-1])
        gate, up = self._linear(x, sizes.inner, parts[0]), self._linear(x, sizes.inner, parts[-2])
        return self._linear(tape.mul(tape.unary(sizes.activation, gate), up), sizes.hidden, parts[-1])

    def _head(self, x: Tensor) -> Tensor:
        """Logits, in fp32 when the module hands them out."""
        head = [p for p in self.block.parameters if p.part in ("head", "embedding")]
        logits = self._linear(self._norm(x, self._norms()[0]), head[0].shape[0], head)
        wide = self.tape.new(logits.shape, "fp32", requires_grad=logits.requires_grad, op=WIDENED)
        self.tape.record(WIDENED, [logits], [wide])
        return wide

    def _loss(self, logits: Tensor) -> Tensor:
        """Log-probabilities of chunks of 128 positions, which their gradients replace."""
        tape = self.tape
        with tape.inside("loss"):
            kept = tape.new(logits.shape, "fp32", op="log-probabilities")
            loss = tape.new((), "fp32", requires_grad=logits.requires_grad, op="loss")
            tape.record("fused_cross_entropy", [logits], [loss, kept], [(kept, "log-probabilities")])
            # Backward of one chunk: gradients of the loss and of log-softmax beside the log-probabilities.
            chunk = product((self.batch, CHUNK, logits.shape[-1])) * ITEM_BYTES["fp32"]
            tape.nodes[-1] = replace(tape.nodes[-1], workspace_bytes=2 * chunk)
            return loss
