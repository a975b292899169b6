"""`generate` on several GPUs: each holds what `device_map="auto"` lays on it, and the fullest answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramwise.estimation import estimate
from vramwise.models import describe
from vramwise.result import Result
from vramwise.serving.common.storage import storage_of
from vramwise.serving.transformers.cards import cards_of
from vramwise.serving.transformers.device_map import device_map
from vramwise.units import GIB

LLAMA = {"model": "llama-3.1-70b", "gpu": "a100-sxm-80gb"}
SMALL = {
    "model_type": "llama", "vocab_size": 3200, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
}  # fmt: skip


def asked(count: int, **settings: Any) -> Result:
    return estimate({**LLAMA, "task": "generate", "num_gpus": count, "generate": settings})


@pytest.mark.parametrize("table", [{"task": "generate"}, {"task": "serve", "serve": {"engine": "transformers"}}])
def test_a_model_that_fits_over_two_cards_fits(table: dict[str, Any]) -> None:
    one, two = (estimate({**LLAMA, **table, "num_gpus": count}) for count in (1, 2))
    assert one.verdict is not None
    assert two.verdict is not None
    assert not one.verdict.fits
    assert two.verdict.fits
    assert [rank.name for rank in two.ranks] == ["GPU 0", "GPU 1"]
    assert max(rank.bytes for rank in two.ranks) == two.quantities["nvidia_smi"].expected
    assert one.quantities["weights"].expected == pytest.approx(2 * two.quantities["weights"].expected, rel=1e-3)


def test_the_note_says_whose_answer_it_is() -> None:
    said = (
        'the answer is for the fullest, GPU 0: device_map="auto" lays the layers over 2 GPUs, '
        "65.71 GiB of weights on this one"
    )
    assert said in asked(2).notes
    assert said not in asked(1).notes


def test_caches_of_all_cards_are_those_of_one() -> None:
    """4,351 tokens of 80 layers, 2 · 8 · 128 values each; the two cards have 40 layers each."""
    two = asked(2, prompt_tokens=4096, new_tokens=256)
    decode = next(phase for phase in two.phases if phase.name == "decode")
    cells = decode.components.find("KV cache/keys and values")
    assert cells is not None
    assert cells.bytes == 40 * 4351 * 2 * 8 * 128 * 2


def test_logits_are_sampled_on_the_first_card() -> None:
    """512 rows of 128,256 values, in bf16 as the last card sent them, and their fp32 copy."""
    result = asked(2, batch_size=512, prompt_tokens=2, new_tokens=1)
    logits = result.phases[1].components.find("logits")
    assert logits is not None
    assert logits.bytes == 512 * 128256 * (2 + 4)
    assert result.ranks[0].bytes > result.ranks[1].bytes


def test_weights_without_room_are_said_to_lie_in_host_memory() -> None:
    result = estimate({**LLAMA, "gpu": "rtx-4090", "num_gpus": 4, "task": "generate"})
    assert result.verdict is not None
    assert not result.verdict.fits
    (note,) = (note for note in result.notes if "host memory" in note)
    assert note.startswith('device_map="auto" finds no room on the GPUs for 43.')
    assert result.quantities["weights"].expected > 43 * GIB


def test_bitsandbytes_leaves_a_tenth_of_each_card_free() -> None:
    """int8 weights of 70 GB on four cards of 24 GB, of which 0.9 · (24 - context) may be filled: they have room."""
    scenario = {**LLAMA, "gpu": "rtx-4090", "task": "generate", "generate": {"quantization": "bitsandbytes-int8"}}
    (_, refused) = (n for n in estimate({**scenario, "num_gpus": 3}).notes if "host memory" in n)
    assert "bitsandbytes refuses" in refused
    assert not any("host memory" in n for n in estimate({**scenario, "num_gpus": 4}).notes)


@settings(max_examples=30, deadline=None)
@given(
    layers=st.integers(1, 12), count=st.integers(2, 6), share=st.floats(0.05, 2.0), tied=st.booleans(),
    quantization=st.sampled_from((None, "nf4", "int8")),
)  # fmt: skip
def test_every_weight_and_cache_lies_on_one_card(
    layers: int, count: int, share: float, tied: bool, quantization: str | None
) -> None:
    model = describe({**SMALL, "num_hidden_layers": layers, "tie_word_embeddings": tied})
    storage = storage_of(model, "bf16", quantization, None)
    free = int(share * 2 * model.num_parameters)
    cards = cards_of(model, device_map(model, storage, count, free, (5, 23)), count)
    held = [parameter.name for card in cards for parameter in card.held.all_parameters]
    assert sorted(held) == sorted(parameter.name for parameter in model.all_parameters)
    assert sum(len(card.held.caches) for card in cards) == layers
    assert sum(card.has_head for card in cards) == 1


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(2, 5), batch=st.integers(1, 16), prompt=st.integers(1, 6000),
    more=st.integers(1, 16), longer=st.integers(1, 2000),
)  # fmt: skip
def test_no_card_needs_less_for_more_tokens(count: int, batch: int, prompt: int, more: int, longer: int) -> None:
    few = asked(count, batch_size=batch, prompt_tokens=prompt)
    many = asked(count, batch_size=batch + more, prompt_tokens=prompt + longer)
    pairs = zip(few.ranks, many.ranks, strict=True)
    assert all(less.bytes <= greater.bytes for less, greater in pairs)


QWEN3_14B = {"model": "qwen3-14b", "task": "generate"}


def test_of_unequal_cards_the_last_takes_what_is_left() -> None:
    """accelerate 1.15 on 28 GiB: 15 layers on a card of 12 GB before one of 24, and the rest on that one."""
    result = estimate({**QWEN3_14B, "gpus": ["rtx-3060-12gb", "rtx-4090"]})
    assert result.verdict is not None
    assert result.verdict.fits
    assert result.capacity is not None
    assert result.capacity.gpu == "rtx-3060-12gb"
    first, last = (rank.bytes for rank in result.ranks)
    assert first < 12 * GIB < last < 23 * GIB
    assert not any("host memory" in note for note in result.notes)
    assert any(note.startswith("the answer is for the one with the least room left, GPU 0") for note in result.notes)


def test_an_earlier_larger_card_takes_an_equal_share_alone() -> None:
    """accelerate 1.15 get_balanced_memory: every card but the last is held to its share, so that the last overflows."""
    result = estimate({**QWEN3_14B, "gpus": ["rtx-4090", "rtx-3060-12gb"]})
    assert result.verdict is not None
    assert not result.verdict.fits
    (note,) = (note for note in result.notes if "host memory" in note)
    assert note.startswith('device_map="auto" finds no room on the GPUs for 2.')


def test_unequal_cards_of_one_kind_are_equal_ones() -> None:
    named = estimate({**QWEN3_14B, "gpus": ["rtx-4090", "rtx-4090"]})
    alike = estimate({**QWEN3_14B, "gpu": "rtx-4090", "num_gpus": 2})
    assert named.quantities == alike.quantities
