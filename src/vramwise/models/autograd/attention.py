"""`F.scaled_dot_product_attention`: which kernel runs, and what each kernel keeps."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.pointwise import Contractions
from vramwise.models.autograd.size import Dim, axis, name_of, probe, product, tokens_without, total
from vramwise.models.autograd.tensor import Tensor, pointwise_strides


def rounded_up(dim: Dim, multiple: int) -> Dim:
    """A length rounded up, as an axis of its own (`with_rounded_axes` supplies its value)."""
    if isinstance(dim, int):
        return -(-dim // multiple) * multiple
    if all(count % multiple == 0 for count in dim.terms.values()):
        return dim
    return axis(f"{name_of(dim)}_up_to_{multiple}")


def whole_eights(dim: Dim, axes: frozenset[str]) -> bool:
    """Whether a length is a multiple of 8, where the `axes` are."""
    if isinstance(dim, int):
        return dim % 8 == 0
    return dim.axes <= axes or all(count % 8 == 0 for count in dim.terms.values())


class Attention(Contractions):
    """Scaled dot-product attention over (batch, heads, sequence, head_dim)."""

    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        enable_gqa: bool = False,
        backend: str = "auto",
        calls: Dim = 1,
    ) -> Tensor:
        """Dispatches as torch 2.13 does, with sm80 or newer assumed on CUDA; `calls` cut the batch between them."""
        q, k, v = self.autocast_low(q, k, v)
        if mask is not None and mask.dtype not in ("bool", q.dtype):
            (mask,) = self.autocast_low(mask)
        chosen = self.sdpa_backend(q, k, v, mask, enable_gqa, dropout) if backend == "auto" else backend
        if chosen == "flash":
            return self._flash(q, k, v, mask, causal, dropout, unused=True, calls=calls)
        if chosen == "cudnn":
            return self._flash(q, k, v, mask, causal, dropout, unused=False, calls=calls)
        if chosen == "efficient":
            return self._efficient(q, k, v, mask, causal, dropout, calls)
        return self._math(q, k, v, mask, causal, dropout, enable_gqa)

    def sdpa_backend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, gqa: bool, dropout: float) -> str:
        """Kernel choice (torch 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.cpp).

        Flash wants 16 bit, no mask, equal head sizes up to 256; memory-efficient wants equal head counts, equal q
        and k head sizes divisible by 8 (4 in fp32). On CPU the flash kernel takes any dtype but needs equal heads
        sizes, no dropout, and head counts it can broadcast.
        """
        equal_heads = q.shape[1] == k.shape[1] == v.shape[1]
        equal_dims = q.shape[-1] == k.shape[-1] == v.shape[-1]
        if self.device == "cpu":
            mask_trains = mask is not None and mask.requires_grad
            return "flash" if equal_dims and dropout == 0 and (equal_heads or gqa) and not mask_trains else "math"
        head_dim = q.shape[-1]
        assert isinstance(head_dim, int)
        flash_shapes = equal_dims and head_dim <= 256 and (equal_heads or gqa)
        if mask is None and q.dtype in ("bf16", "fp16") and flash_shapes:
            return "flash"
        unit = 4 if q.dtype == "fp32" else 8
        if equal_heads and q.shape[-1] == k.shape[-1] and head_dim % unit == 0:
            return "efficient"
        return "math"

    def _attention_flops(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Dim, Dim]:
        b, heads, s, d = q.shape
        scores = 2 * product((b, heads, s, k.shape[2])) * d
        mixed = 2 * product((b, heads, s, k.shape[2])) * v.shape[-1]
        return scores + mixed, scores * 3 + mixed * 2

    def _flash(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, unused: bool,
        calls: Dim,
    ) -> Tensor:  # fmt: skip
        b, heads, s, _ = q.shape
        grad = q.requires_grad or k.requires_grad or v.requires_grad
        flops, backward = self._attention_flops(q, k, v)
        if self.device == "cpu":
            op = "_scaled_dot_product_flash_attention_for_cpu"
            # `at::empty_like(query)`: rotary positions that concatenate leave the query, and so this, heads-first.
            out = self.like(q, requires_grad=grad, op=op)
            stats = self.new((b, heads, s), "fp32" if q.dtype != "fp64" else "fp64", op=op)
            saves = [(q, "query"), (k, "key"), (v, "value"), (out, "output"), (stats, "logsumexp")]
            if mask is not None:
                saves.append((self._float_mask(mask, q.dtype), "attn_mask"))
            self.record(op, [q, k, v], [out, stats], saves, flops=flops, backward_flops=backward)
            return out
        op = "_scaled_dot_product_flash_attention"
        q, k, v = (self._padded_head(tensor, 8) for tensor in (q, k, v))
        strides = q.strides if q.is_dense() else pointwise_strides(q.shape, (q,))
        out = self.new(q.shape, q.dtype, requires_grad=grad, strides=strides, op=op)
        stats = self.new((b, heads, s), "fp32", op=op)
        rng = self.new((2 * calls,), "uint64", op=op)
        saves = [
            (q, "query"),
            (k, "key"),
            (v, "value"),
            (stats, "logsumexp"),
            (out, "output"),
            (rng, "rng_state"),
        ]
        if unused:
            saves.append((self.new((calls,), "uint64", op=op), "unused"))
        self.record(op, [q, k, v], [out, stats], saves, flops=flops, backward_flops=backward)
        self._beside_flash_gradients(b * s, b * k.shape[2], heads, k.shape[1], (q.shape[-1], v.shape[-1]))
        return out

    def _beside_flash_gradients(
        self, queries: Dim, keys: Dim, heads: Dim, kv_heads: Dim, widths: tuple[Dim, Dim]
    ) -> None:  # fmt: skip
        """What backward of a flash kernel takes beside its results, for the node recorded last.

        flash-attn 2.8 csrc/flash_attn/flash_api.cpp mha_bwd, the same in torch 2.13: the queries' gradient in fp32,
        heads a multiple of 32 wide (256 above 192); a number a row in fp32; where heads share keys and values, the
        gradients of those for every head. Not counted: queries rounded up to 128.
        """
        width, of_values = widths
        rounded = 256 if probe(width) > 192 else rounded_up(width, 32)
        pieces = [4 * queries * heads, 4 * queries * heads * rounded]
        if probe(heads) != probe(kv_heads):
            pieces += [2 * keys * heads * width, 2 * keys * heads * of_values]
        node = replace(self.nodes[-1], backward_workspace_bytes=total(pieces), backward_pieces=tuple(pieces))
        self.nodes[-1] = node

    def flash_without_padding(self, q: Tensor, k: Tensor, v: Tensor, padding_share: float) -> Tensor:
        """flash-attn over the tokens that are no padding: (b, heads, s, d) -> (b, s, heads, d).

        transformers modeling_flash_attention_utils.py `_upad_input` and flash-attn bert_padding.py: tokens are picked
        out of q, k and v, attention keeps them and its result, which is then spread over rows of zeros. Both ways keep
        the tokens' places, which every layer looks up anew.
        """
        q, k, v = self.autocast_low(q, k, v)
        op, (b, heads, s, _) = "_scaled_dot_product_flash_attention", q.shape
        tokens = tokens_without(b * s, padding_share)
        places = self.new((tokens,), "int64", op="nonzero")
        picked = []
        for x in (q, k, v):
            shape = (tokens, x.shape[1], x.shape[-1])
            whole = self.reshape(self.transpose(x, 1, 2), b * s, *shape[1:])
            picked.append(self.new(shape, x.dtype, requires_grad=x.requires_grad, op="index"))
            self.record("index", [whole], [picked[-1]], [(places, "indices")])
        grad = any(x.requires_grad for x in picked)
        flops, backward = self._attention_flops(q, k, v)
        out = self.new((tokens, heads, v.shape[-1]), q.dtype, requires_grad=grad, op=op)
        stats, rng = self.new((heads, tokens), "fp32", op=op), self.new((2,), "uint64", op=op)
        names = ("query", "key", "value", "output", "logsumexp", "rng_state")
        saves = list(zip((*picked, out, stats, rng), names, strict=True))
        self.record(op, picked, [out, stats], saves, flops=flops, backward_flops=backward)
        self._beside_flash_gradients(tokens, tokens, heads, k.shape[1], (q.shape[-1], v.shape[-1]))
        spread = self.new((b, s, heads, v.shape[-1]), q.dtype, requires_grad=grad, op="index_put")
        self.record("index_put", [out], [spread], [(places, "indices")])
        return spread

    def flash_of_own_widths(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """A flash kernel whose values are narrower than its keys: (b, heads, s, d) -> (b, s, heads, value width)."""
        op, (b, heads, s, _) = "_scaled_dot_product_flash_attention", q.shape
        grad = q.requires_grad or k.requires_grad or v.requires_grad
        flops, backward = self._attention_flops(q, k, v)
        out = self.new((b, s, heads, v.shape[-1]), q.dtype, requires_grad=grad, op=op)
        stats, rng = self.new((b, heads, s), "fp32", op=op), self.new((2,), "uint64", op=op)
        names = ("query", "key", "value", "output", "logsumexp", "rng_state")
        saves = list(zip((q, k, v, out, stats, rng), names, strict=True))
        self.record(op, [q, k, v], [out, stats], saves, flops=flops, backward_flops=backward)
        self._beside_flash_gradients(b * s, b * k.shape[2], heads, k.shape[1], (q.shape[-1], v.shape[-1]))
        return out

    def _padded_head(self, x: Tensor, unit: int) -> Tensor:
        head_dim = x.shape[-1]
        assert isinstance(head_dim, int)
        return x if head_dim % unit == 0 else self.pad(x, -1, unit - head_dim % unit)

    def _efficient(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, calls: Dim
    ) -> Tensor:
        op = "_scaled_dot_product_efficient_attention"
        b, heads, s, _ = q.shape
        grad = q.requires_grad or k.requires_grad or v.requires_grad
        flops, backward = self._attention_flops(q, k, v)
        out = self.transpose(self.new((b, s, heads, v.shape[-1]), q.dtype, requires_grad=grad, op=op), 1, 2)
        stats = self.new((b, heads, rounded_up(s, 32)), "fp32", op=op)
        saves = [(q, "query"), (k, "key"), (v, "value"), (out, "output"), (stats, "log_sumexp")]
        saves += [
            (self.new((calls,), "int64", op=op), "philox_seed"),
            (self.new((calls,), "int64", op=op), "philox_offset"),
        ]
        inputs = [q, k, v]
        if mask is not None:
            bias = self._kernel_mask(mask, q, k)
            if bias.requires_grad:  # `preprocess_mask`: its gradient is made for every row, and summed
                bias = self.expand(bias, b, heads, s, k.shape[2])
            saves.append((bias, "attn_bias"))
            inputs.append(bias)
        self.record(op, inputs, [out, stats], saves, flops=flops, backward_flops=backward)
        return out

    def _kernel_mask(self, mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The memory-efficient kernel's bias: floats, rows padded to a multiple of 8 (`pad_bias`) and sliced."""
        mask = self._float_mask(mask, q.dtype)
        columns = mask.shape[-1]
        if whole_eights(columns, self.rows_of_eight):
            return mask
        shape = (*mask.shape[:-1], rounded_up(columns, 8))
        padded = self.new(shape, mask.dtype, requires_grad=mask.requires_grad, op="constant_pad_nd")
        self.record("constant_pad_nd", [mask], [padded])
        return self.narrow(padded, -1, columns)

    def _float_mask(self, mask: Tensor, dtype: str) -> Tensor:
        """`convert_boolean_attn_mask`: 0 where allowed, -inf elsewhere, in the query's dtype."""
        if mask.dtype != "bool":
            return mask
        floats = self.new(mask.shape, dtype, op="where")
        self.record("where", [mask], [floats])
        return floats

    def _math(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        causal: bool,
        dropout: float,
        enable_gqa: bool,
    ) -> Tensor:
        """`_scaled_dot_product_attention_math`: scores, softmax, product; 16-bit inputs are computed in fp32."""
        dtype = q.dtype
        if dtype in ("bf16", "fp16"):
            q, k, v = (self.to(tensor, "fp32") for tensor in (q, k, v))
        heads, groups = q.shape[1], k.shape[1]
        if enable_gqa and heads != groups:
            assert isinstance(heads, int)
            assert isinstance(groups, int)
            # `at::repeat_interleave` copies even where expanding and reshaping would be a view.
            k, v = (self.contiguous(self.repeat_interleave_heads(x, heads // groups)) for x in (k, v))
        scores = self.matmul_plain(self.scale(q), self.transpose(self.scale(k), 2, 3))
        if causal or mask is not None:
            scores = self.add_(scores, scores)
        weights = self.softmax_plain(scores)
        if dropout:
            weights = self.dropout(weights, dropout)
        out = self.matmul_plain(weights, v)
        return self.to(out, dtype)

    def matmul_plain(self, a: Tensor, b: Tensor) -> Tensor:
        """A product below autocast's dispatch key: operands keep their dtype."""
        autocast, self.autocast = self.autocast, None
        try:
            return self.matmul(a, b)
        finally:
            self.autocast = autocast

    def softmax_plain(self, x: Tensor) -> Tensor:
        autocast, self.autocast = self.autocast, None
        try:
            return self.softmax(x)
        finally:
            self.autocast = autocast
