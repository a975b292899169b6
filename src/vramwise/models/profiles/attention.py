"""Attention and rotary positions as transformers 5.23 runs them."""

from __future__ import annotations

from typing import Literal

from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Modality, Op
from vramwise.models.execution import Execution

# Eager attention paths that ask softmax for fp32 explicitly and cast the result back.
_UPCASTING = frozenset({"llama"})
_ORDINARY = frozenset({"llama", "plain", "gpt2", "gpt_neo", "gptj", "mpt"})
"""Styles that run as `_eager` and `_sdpa` have it, but where they have a method of their own."""


class AttentionPaths:
    """Eager and SDPA paths, masks and rotary tables."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    tables: dict[str, tuple[Tensor, ...]]
    hidden_dtype: str
    windows_reached: frozenset[int]
    modality: Modality
    images_see_each_other: Literal["", "windows", "all"]

    # -- rotary positions ----------------------------------------------------------------------------------

    def rotary(self, op: Op, *turned: Tensor) -> tuple[Tensor, ...]:
        width = op.settings["rotary_dim"]
        if op.settings["table"] == "own":  # the layer makes one for itself, in the dtype of its values
            cos, sin = (self.tape.new((1, self.sequence, width), turned[0].dtype, op=fn) for fn in ("cos", "sin"))
        else:
            cos, sin = self.rotary_table(op.settings["table"], width)
        if op.settings["style"] in ("pairs", "pairs_joined", "pairs_widened") and not op.settings["table"].startswith(
            "rows"
        ):
            cos, sin = self._doubled(cos), self._doubled(sin)
        rotate = getattr(self, f"_rotate_{op.settings['style']}")
        return tuple(self._partial(rotate, x, width, cos, sin) for x in turned)

    def rotary_table(self, name: str, width: int) -> tuple[Tensor, ...]:
        """cos and sin of shape (1, sequence, width) in the hidden states' dtype, a parameter's or fp32, made once."""
        if name == "own":  # every layer makes one from its values
            own = self.execution.autocast or self.execution.param_dtype
            return tuple(self.tape.new((1, self.sequence, width), own, op=fn) for fn in ("cos", "sin"))
        key = f"{name}/{width}"
        if key not in self.tables:
            # Multimodal rotary positions and those of packed samples come for every row, and so do their tables.
            by_row = name.startswith("rows") or self.execution.positions_by_row
            shape = (self.batch if by_row else 1, self.sequence, width)
            kept = self.execution.param_dtype if name == "parameter" else self.hidden_dtype
            dtype = "fp32" if "fp32" in name.split() else kept
            self.tables[key] = tuple(self.tape.new(shape, dtype, op=fn) for fn in ("cos", "sin"))
        return self.tables[key]

    def _partial(self, rotate, x: Tensor, width: int, cos: Tensor, sin: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        if x.shape[-1] == width:
            return rotate(x, cos, sin)  # type: ignore[no-any-return]
        head_dim = x.shape[-1]
        turned, passed = self.tape.split(x, [width, head_dim - width])
        return self.tape.cat([rotate(turned, cos, sin), passed])

    def _rotate_half(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x·cos + rotate_half(x)·sin."""
        tape = self.tape
        cos, sin = tape.unsqueeze(cos, 1), tape.unsqueeze(sin, 1)
        half = x.shape[-1] // 2
        first, second = tape.narrow(x, -1, half), tape.narrow(x, -1, half)
        turned = tape.cat([tape.unary("neg", second), first])
        return tape.add(tape.mul(x, cos), tape.mul(turned, sin))

    def _rotate_half_joined(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `_rotate_half`, then joined with an empty rest: a row-major copy (GPT-NeoX with rotary_pct = 1)."""
        return self.tape.cat([self._rotate_half(x, cos, sin)])

    def _rotate_half_fp32(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `_rotate_half` on fp32 tables, cast back (OLMo)."""
        return self.tape.to(self._rotate_half(x, cos, sin), x.dtype)

    def _doubled(self, table: Tensor) -> Tensor:
        """The first half of a table with every column twice: a copy that each layer makes for itself (GLM, Helium)."""
        tape, half = self.tape, table.shape[-1] // 2
        half_table = tape.unsqueeze(tape.narrow(table, -1, half), -1)
        return tape.reshape(tape.expand(half_table, *half_table.shape[:-1], 2), *table.shape)

    def _rotate_pairs(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x·cos + (−odd, even)·sin with even and odd elements interleaved."""
        tape = self.tape
        cos, sin = tape.unsqueeze(cos, 1), tape.unsqueeze(sin, 1)
        turned = self._turned_neighbours(x)
        return tape.add(tape.mul(x, cos), tape.mul(turned, sin))

    def _turned_neighbours(self, x: Tensor) -> Tensor:
        """(−odd, even): neighbours change places and one its sign."""
        even, odd = self.tape.step(x, -1, 2), self.tape.step(x, -1, 2)
        return self.tape.reshape(self.tape.stack([self.tape.unary("neg", odd), even], -1), *x.shape)

    def _rotate_pairs_joined(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `_rotate_pairs`, then joined with an empty rest: a row-major copy (GLM turned as a whole)."""
        return self.tape.cat([self._rotate_pairs(x, cos, sin)])

    def _rotate_pairs_fp32(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `_rotate_pairs` on an fp32 copy, cast back (Cohere)."""
        return self.tape.to(self._rotate_pairs(self.tape.to(x, "fp32"), cos, sin), x.dtype)

    def _rotate_pairs_widened(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `_rotate_pairs` on fp32 tables, both factors widened to fp32 and the sum cast back (ERNIE 4.5)."""
        tape = self.tape
        cos, sin = tape.unsqueeze(cos, 1), tape.unsqueeze(sin, 1)
        turned = tape.to(self._turned_neighbours(x), "fp32")
        return tape.to(tape.add(tape.mul(tape.to(x, "fp32"), cos), tape.mul(turned, sin)), x.dtype)

    def _rotate_interleaved_cat(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """DeepSeek's interleaved pairs: even and odd elements rotated apart, then concatenated."""
        tape = self.tape
        half = cos.shape[-1] // 2
        cos, sin = (tape.unsqueeze(tape.narrow(table, -1, half), 1) for table in (cos, sin))
        even, odd = tape.step(x, -1, 2), tape.step(x, -1, 2)
        left = tape.add(tape.mul(even, cos), tape.mul(odd, sin))
        right = tape.add(tape.mul(odd, cos), tape.mul(even, sin))
        return tape.cat([left, right])

    def _rotate_interleaved_cat_fp32(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `_rotate_interleaved_cat`, cast back from the tables' dtype (Dots 3)."""
        return self.tape.to(self._rotate_interleaved_cat(x, cos, sin), x.dtype)

    def scale_by_position(self, op: Op, q: Tensor) -> Tensor:
        """Queries times a factor for each position, which every layer makes anew (`get_llama_4_attn_scale`)."""
        return self.tape.mul(q, self.tape.new((1, 1, self.sequence, 1), q.dtype, op="_to_copy"))

    def scale_by_log_position(self, op: Op, q: Tensor) -> Tensor:
        """Beam: queries times a factor for each position in fp32, made once a kind of layer, cast back."""
        key = f"log position/{op.settings['table']}"
        if key not in self.tables:
            self.tables[key] = (self.tape.new((1, 1, self.sequence, 1), "fp32", op="exp"),)
        return self.tape.to(self.tape.mul(self.tape.to(q, "fp32"), self.tables[key][0]), q.dtype)

    # -- attention -----------------------------------------------------------------------------------------

    def attention(self, op: Op, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
        """(batch, heads, sequence, d) -> (batch, sequence, heads·d)."""
        if self.execution.use_cache and op.settings["causal"] and not op.settings.get("latent"):
            k, v = self.tape.cat([k], 2), self.tape.cat([v], 2)
        chosen = self.execution.attention
        flash = "flash" in (chosen, self.execution.sdpa_backend)
        if op.settings.get("eager_only") and not (flash and op.settings.get("has_flash")):
            chosen = "eager"
        styled = getattr(self, f"_{chosen}_{op.settings['style']}", None)
        if styled is not None:
            out = styled(op, q, k, v, *others)
        elif op.settings["style"] not in _ORDINARY:
            raise UndescribedOperationError(f"attention of the style {op.settings['style']} is not described")
        else:
            out = self._eager(op, q, k, v) if chosen == "eager" else self._sdpa(op, q, k, v)
        return self.tape.contiguous(self.tape.reshape(out, *out.shape[:2], -1))

    def attention_dropout(self, op: Op) -> float:
        return float(op.settings["dropout"]) if self.execution.dropout else 0.0

    def needs_mask(self, op: Op) -> bool:
        """SDPA gets a mask only for padding or a window shorter than the sequence; flash attention never."""
        if self.execution.sdpa_backend == "flash":
            return False
        window = op.settings["window"]
        seen = self.images_see_each_other if self.modality == "text" else ""
        always = (
            self.padded()
            or self._holds_documents(op)
            or seen == "all"
            or (seen and window)
            or op.settings.get("masked")
        )
        return bool(always) or window in self.windows_reached

    def padded(self) -> bool:
        """Whether a padding mask is passed: images have none."""
        return self.execution.padding and self.modality == "text"

    def _holds_documents(self, op: Op) -> bool:
        return self.execution.documents and self.modality == "text" and bool(op.settings["causal"])

    def _eager(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tape = self.tape
        times = op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
        if op.settings.get("softcap"):
            scores = tape.scale(tape.unary("tanh", tape.scale(scores)))
        if op.settings["causal"] or self.padded():
            # The mask has the dtype of the embeddings: under autocast it makes the scores fp32.
            mask = tape.new((self.batch, 1, q.shape[2], k.shape[2]), self.hidden_dtype, op="mask")
            scores = tape.add(scores, self._given_mask() if self.execution.mask_form == "given" else mask)
        if op.settings["style"] in _UPCASTING:
            weights = tape.to(tape.softmax(scores, "fp32"), q.dtype)
            tape.record("locals", [scores], [])  # the name keeps the scores until it is bound anew
        elif op.settings["style"] == "plain":
            weights = tape.softmax(scores)
        else:
            weights = tape.to(tape.softmax(scores), v.dtype)
        weights = tape.dropout(weights, self.attention_dropout(op))
        out = tape.transpose(tape.matmul(weights, v), 1, 2)
        return tape.contiguous(out) if op.settings["style"] == "llama" else out

    def _mask_for_sdpa(self, op: Op, q: Tensor, k: Tensor) -> Tensor | None:
        tape, (rows, columns), form = self.tape, (q.shape[2], k.shape[2]), self.execution.mask_form
        if op.settings.get("block_mask"):
            return tape.new((self.batch, q.shape[1], rows, columns), q.dtype, op="mask")
        if not self.needs_mask(op):
            return None
        if form == "bool" or self.modality != "text":
            return tape.new((self.batch, 1, rows, columns), "bool", op="mask")
        if form == "given":
            return self._given_mask()
        key = f"mask/{op.settings['window']}/{op.settings['causal']}/{rows}/{columns}"
        if key not in self.tables:
            self.tables[key] = (tape.new((self.batch, 1, rows, columns), self.hidden_dtype, op="mask"),)
        return self.tables[key][0]

    def _given_mask(self) -> Tensor:
        """The mask that comes with the batch, in the dtype of products, for layers of every kind."""
        if "given mask" not in self.tables:
            shape, dtype = (self.batch, 1, self.sequence, self.sequence), self.execution.autocast or self.hidden_dtype
            self.tables["given mask"] = (self.tape.new(shape, dtype, kind="input", op="mask"),)
        return self.tables["given mask"][0]

    def _sdpa(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tape, mask = self.tape, self._mask_for_sdpa(op, q, k)
        times = op.settings["num_heads"] // op.settings["num_key_value_heads"]
        native_groups = packed = False
        if times > 1:
            width = k.shape[-1]
            assert isinstance(width, int)
            native_groups = mask is None and width == v.shape[-1] and width <= 256
            native_groups = native_groups and not self.execution.flash_repeats_heads
            packed = not native_groups and self.sequence == 1
            if packed:  # `pack_gqa`: the heads of a group stand in for tokens
                q = tape.reshape(q, self.batch, k.shape[1], times, width)
            elif not native_groups:
                k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        if self.execution.sdpa_backend == "flash" and self.padded() and q.shape[2] == k.shape[2]:
            return tape.flash_without_padding(q, k, v, self.execution.padding_share)
        out = tape.sdpa(
            q, k, v, mask=mask, causal=mask is None and op.settings["causal"], dropout=self.attention_dropout(op),
            enable_gqa=native_groups, backend=self.execution.sdpa_backend,
        )  # fmt: skip
        if packed:
            out = tape.reshape(out, self.batch, -1, self.sequence, v.shape[-1])
        return tape.contiguous(tape.transpose(out, 1, 2))
