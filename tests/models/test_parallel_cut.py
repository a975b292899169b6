"""What tensor and expert parallelism leave of a parameter on one rank, by hand."""

from __future__ import annotations

import pytest

from vramwise.errors import UnevenCutError
from vramwise.models import describe
from vramwise.models.blocks import Parameter, Shard
from vramwise.models.parallel_cut import WHOLE, KeyValueRows, ParallelCut, key_value_rows

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 1,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


def parameter(shape: tuple[int, ...], shard: Shard) -> Parameter:
    return Parameter("layer.weight", shape, "mlp", shard)


@pytest.mark.parametrize(
    ("shard", "shape", "left"),
    [
        ("column", (224, 64), (56, 64)),
        ("column", (224,), (56,)),
        ("column", (225, 64), (57, 64)),
        ("row", (64, 224), (64, 56)),
        ("vocab", (100, 64), (32, 64)),  # padded to 128
        ("replicated", (64, 64), (64, 64)),
        ("expert_column", (8, 224, 64), (4, 112, 64)),
        ("expert_row", (8, 64, 224), (4, 64, 112)),
    ],
)
def test_what_is_left_on_one_of_four_ranks(shard: Shard, shape: tuple[int, ...], left: tuple[int, ...]) -> None:
    cut = ParallelCut(4, 2, 2, vocab_multiple=32)
    assert cut.shape(parameter(shape, shard)) == left
    assert WHOLE.shape(parameter(shape, shard)) == shape


def test_a_layer_that_stores_its_inputs_first_is_cut_along_the_other_axis() -> None:
    cut = ParallelCut(4)
    assert cut.shape(parameter((64, 224), "column"), inputs_first=True) == (64, 56)
    assert cut.shape(parameter((224, 64), "row"), inputs_first=True) == (56, 64)


def test_ranks_that_share_a_parameter() -> None:
    cut = ParallelCut(4, 8, 2)
    shards: tuple[Shard, ...] = ("column", "row", "vocab", "replicated", "expert_column", "expert_row")
    assert [cut.ranks(parameter((8, 8, 8), shard)) for shard in shards] == [4, 4, 4, 1, 16, 16]


def test_every_rank_has_a_key_value_head() -> None:
    """Two heads of 8: whole on one rank, one each on two, on four each head twice."""
    (layer,) = describe(LLAMA).layers()
    keys = next(p for p in layer.parameters if p.name.endswith("k_proj.weight"))
    found = key_value_rows(layer)["model.layers.0.self_attn.k_proj"]
    assert found == KeyValueRows(rows=16, heads=2)
    rows = [ParallelCut(ranks).shape(keys, key_values=found)[0] for ranks in (1, 2, 4)]
    assert rows == [16, 8, 8]


def test_a_fused_projection_has_its_queries_cut_and_its_keys_and_values_copied() -> None:
    fused = parameter((64 + 2 * 16, 64), "column")
    assert ParallelCut(4).shape(fused, key_values=KeyValueRows(32, 2)) == (16 + 16, 64)


def test_a_width_that_the_ranks_do_not_divide_is_no_share() -> None:
    assert ParallelCut(4).share(224, "mlp.up_proj") == 56
    with pytest.raises(UnevenCutError, match="4 does not divide the 226 outputs of mlp"):
        ParallelCut(4).share(226, "mlp.up_proj")
