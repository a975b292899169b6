"""What a token leaves behind in a layer: the cache specification."""

from __future__ import annotations

from typing import Literal

from vramwise.records import record

CacheKind = Literal["full", "sliding", "chunked", "latent", "cross", "recurrent", "none"]


@record
class LayerCache:
    """One layer's cache.

    full:      every token keeps num_key_value_heads · (key_head_dim + value_head_dim) elements.
    sliding:   the same, of the last `window` tokens at most; chunked: of the current chunk of `window` tokens.
    latent:    every token keeps latent_dim + rope_dim elements, one head for all (multi-head latent attention), and
               index_dim more where an indexer picks the tokens that attention reads (`fp32_index`: in fp32). Where it
               picks groups of `index_pool` tokens, transformers keeps each token's weight and a flag beside its key,
               engines one key for the group.
    cross:     as full, of the encoder's tokens: it does not grow while the decoder generates.
    recurrent: a state that does not grow: conv_state_elements (past inputs, in the model's dtype) and state_elements
               (sums over the past, in fp32 in transformers unless `model_dtype_state`) a sequence.

    `token_ids` and `sequence_ids` are whole numbers that transformers' cache holds too, a token and a sequence:
    positions that an indexer needs, the last ids of hashed n-grams. `copies` is how often transformers stores what
    engines store once: DeepSeek V4's vector is key and value in one.
    """

    kind: CacheKind
    num_key_value_heads: int = 0
    key_head_dim: int = 0
    value_head_dim: int = 0
    window: int | None = None
    latent_dim: int = 0
    rope_dim: int = 0
    index_dim: int = 0
    index_pool: int = 0
    conv_state_elements: int = 0
    state_elements: int = 0
    model_dtype_state: bool = False
    fp32_index: bool = False
    copies: int = 1
    token_ids: int = 0
    sequence_ids: int = 0

    @property
    def elements_per_token(self) -> int:
        """Elements that one more token adds while it is inside the window."""
        if self.kind == "latent":
            index = 2 * self.index_dim + 1 if self.index_pool else self.index_dim
            return self.latent_dim + self.rope_dim + index
        return self.num_key_value_heads * (self.key_head_dim + self.value_head_dim)

    @property
    def elements_per_sequence(self) -> int:
        """Elements of a sequence's recurrent state, whatever its length."""
        return self.conv_state_elements + self.state_elements

    def tokens_kept(self, num_tokens: int) -> int:
        """How many of a sequence's tokens (of the encoder's, for `cross`) the layer still holds."""
        if self.kind in ("full", "latent", "cross"):
            return num_tokens
        if self.kind in ("sliding", "chunked") and self.window:
            return min(num_tokens, self.window)
        return 0

    def elements(self, num_tokens: int) -> int:
        """Elements that one sequence of `num_tokens` holds in this layer."""
        return self.tokens_kept(num_tokens) * self.elements_per_token + self.elements_per_sequence
