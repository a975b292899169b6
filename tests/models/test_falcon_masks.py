"""ALiBi through SDPA: one mask of biases for all layers where its rows are whole eights, else a padded copy each.

torch 2.13, aten/src/ATen/native/transformers/attention.cpp: `preprocess_mask` pads a bias only if it is not aligned.
"""

from __future__ import annotations

import pytest

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

HEADS, BATCH = 4, 2


def saved_bytes(num_layers: int, sequence: int, alibi: bool) -> int:
    config = {
        "model_type": "falcon",
        "hidden_size": 64,
        "num_hidden_layers": num_layers,
        "num_attention_heads": HEADS,
        "vocab_size": 32,
        "multi_query": False,
        "alibi": alibi,
    }
    forward = record_forward(describe(config), Execution(), batch=BATCH, sequence=sequence)
    total: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=BATCH, sequence=sequence))
    return total


@pytest.mark.parametrize(("sequence", "padded", "masks"), [(16, 16, 1), (17, 24, 3)])
def test_bias_masks_are_shared_where_rows_are_whole_eights(sequence: int, padded: int, masks: int) -> None:
    with_biases = saved_bytes(3, sequence, alibi=True)
    rotary = saved_bytes(3, sequence, alibi=False)
    # Without ALiBi: a mask of each layer's own, rotary tables, and the turned q and k beside the fused projection.
    own_masks = 3 * BATCH * sequence * padded * 2
    tables = 2 * sequence * 16 * 2
    turned = 3 * 2 * BATCH * sequence * 64 * 2
    assert with_biases - masks * BATCH * HEADS * sequence * padded * 2 == rotary - own_masks - tables - turned
