"""What llama.cpp runs for latent attention: queries taken into the latent space (src/models/deepseek2.cpp)."""

from __future__ import annotations

from vramwise.models.operations.latent import Cached, LatentKey, Temperature
from vramwise.models.operations.simple import Concatenate
from vramwise.serving.llama_cpp.ggml.attending import attend, store
from vramwise.serving.llama_cpp.ggml.build import Build, ggml_lowering
from vramwise.serving.llama_cpp.ggml.tensors import F32, MIXED, Tensor, like, matmul, permute, reshape, view


@ggml_lowering(Temperature)
def temperature(b: Build, op: Temperature, q: Tensor) -> Tensor:
    """Queries by an input of the graph (build_inp_attn_scale)."""
    return like("MUL", q, b.input("query scales", (1, 1, b.batch.tokens), F32))


@ggml_lowering(Cached)
def cached(b: Build, op: Cached, *kept: Tensor) -> tuple[Tensor, ...]:
    """The cache is written where attention reads it."""
    return kept


@ggml_lowering(Concatenate, LatentKey)
def joined(b: Build, op: Concatenate, *parts: Tensor) -> Tensor:
    """Side by side; attention takes apart what it does not keep so."""
    return _side_by_side(*parts)


def _side_by_side(*parts: Tensor) -> Tensor:
    first = parts[0]
    return Tensor("CONCAT", (sum(part.ne[0] for part in parts), *first.ne[1:]), sources=parts)


def latent_attention(b: Build, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over the latent, of which every head's values are unpacked behind it; one product of keys and values in
    the model's class is two weights here."""
    plain, turned = q.sources
    unpacked, position = k.sources
    while unpacked.op != "MUL_MAT":
        unpacked = unpacked.sources[0]
    latent = unpacked.sources[1]
    rank, heads, tokens = latent.ne[0], plain.ne[1], plain.ne[2]
    both = b.parameter("kv_b_proj.weight")
    into = matmul(b.weight(plain.ne[0], rank, heads, of=both, name="attn_k_b"), permute(plain, 0, 2, 1, 3))
    queries = _side_by_side(permute(into, 0, 2, 1, 3), turned)
    latent = reshape(latent, rank, 1, tokens)
    keys = _side_by_side(latent, position)
    for one in (queries, latent, keys):
        b.graph.expand(one)
    cells = store(b, keys, 1, False, "k")
    values = view(cells, (rank, *cells.ne[1:]), cells.nb)
    found = attend(
        b, queries, cells, values, b.mask(False), unpack=b.weight(rank, v.ne[0], heads, of=both, name="attn_v_b")
    )
    found.mark = MIXED
    return found
