"""Embeddings of hashed n-grams that some layers of Qwen 4 add to their residual streams."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.mixers import PaddingZeroed
from vramwise.models.operations.residual_streams import DilatedConv1d, HashedNgrams, StreamGate, StreamNorm
from vramwise.records import record

# Defaults of Qwen4ExpTextConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 8, "ngram_vocab_size_base": 20_000_000,
    "make_ngram_vocab_size_divisible_by": 128,
}  # fmt: skip
MOST_HEADS = 4096
"""Every head has a prime number of rows, which is looked for."""


@record
class NGrams:
    """The table of one layer: hashes of `size` tokens at most, a share of the columns for each of `heads`."""

    size: int
    heads: int
    rows: int
    width: int
    kernel: int


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test with bases that decide every number below 2^41 (Jaeschke, Math. Comp. 61, 1993)."""
    bases = (2, 13, 23, 1_662_803)
    if n < 2 or n in bases:
        return n in bases
    if n % 2 == 0:
        return False
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        power = pow(base, odd, n)
        if base % n and power not in (1, n - 1) and all((power := power * power % n) != n - 1 for _ in range(twos - 1)):
            return False
    return True


def _primes(first: int, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [first] if _is_prime(first) else []
        first += 1
    return found


def ngrams(c: Config, kinds: list[str]) -> dict[int, NGrams]:
    """The table of each layer that has one: its heads' numbers of rows are successive primes through all layers."""
    ids = c.items("ple_layer_ids") or []
    c = c.filled({**_DEFAULTS, "ple_embed_dim": c.hidden_size})
    layers = sorted({Config({"ple_layer_ids": number}, c.model_id).size("ple_layer_ids") for number in ids})
    if not layers:
        return {}
    size, width = c.size("ngram_size"), c.size("ple_embed_dim")
    heads = (size - 1) * c.size("heads_per_ngram")
    if not 0 < heads * len(layers) <= MOST_HEADS or width % heads:
        raise c.error(f"the {heads} heads of n-grams must divide ple_embed_dim ({width}), at most {MOST_HEADS} in all")
    if layers[-1] > len(kinds) or any(kinds[number - 1] != "linear_attention" for number in layers):
        raise c.error("ple_layer_ids: only layers of linear attention, counted from 1")
    primes = _primes(c.size("ngram_vocab_size_base"), heads * len(layers))
    step, kernel = c.size("make_ngram_vocab_size_divisible_by"), c.size("ple_conv_kernel_size")
    totals = (sum(primes[i * heads : (i + 1) * heads]) for i in range(len(layers)))
    return {
        number - 1: NGrams(size, heads, -(-total // step) * step, width, kernel)
        for number, total in zip(layers, totals, strict=True)
    }


def layer_embedding(b: BlockBuilder, x: Value, c: Config, n: NGrams) -> Value:
    """A value for each stream behind a gate, and a dilated convolution of it over positions."""
    b.part, streams = "embedding", c.size("hc_count")
    table = b.parameter("ple.ple_embedding.ngram_embedding", "weight", (n.rows, n.width // n.heads), shard="column")
    found = b.op(HashedNgrams(heads=n.heads, context=n.size - 1), "ple.ple_embedding", [], [n.width], [table])[0]
    b.part = "mixer"

    def normed(y: Value, name: str) -> Value:
        weight = b.parameter(f"ple.{name}", "weight", (x.width,), part="norm")
        return b.unary(StreamNorm(streams=streams), y, f"ple.{name}", [weight])

    key = normed(b.linear(found, "ple.key_proj", x.width), "norm_key")
    value = b.linear(found, "ple.value_proj", c.hidden_size)
    gated = b.op(StreamGate(streams=streams), "ple", [key, normed(x, "norm_query"), value], [x.width])[0]
    weight = b.parameter("ple.conv1d", "weight", (x.width, 1, n.kernel))
    near = b.unary(PaddingZeroed(), normed(gated, "norm_conv"))
    near = b.unary(DilatedConv1d(dilation=n.size), near, "ple.conv1d", [weight])
    b.keep(LayerCache("recurrent", conv_state_elements=x.width * n.size * (n.kernel - 1), sequence_ids=n.size - 1))
    return b.add(b.unary(PaddingZeroed(), gated), near)
