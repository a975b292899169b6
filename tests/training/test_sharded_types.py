"""Every described type is answered, or refused in one line, where its step is replayed around what is gathered."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from described_types import small_model

from by_turns import by_turns
from vramwise import estimate
from vramwise.errors import VramwiseError
from vramwise.models.family_of_type import FAMILY_OF_TYPE

WAYS: tuple[dict[str, Any], ...] = (
    {"fsdp": "full-shard"},
    {"fsdp": "full-shard", "fsdp_version": 2, "checkpointing": "full", "method": "lora"},
    {"zero_stage": 3, "checkpointing": "full"},
)


@pytest.mark.parametrize("model_type", by_turns(sorted(FAMILY_OF_TYPE), 12))
def test_a_step_frees_what_it_took_and_no_more(model_type: str) -> None:
    config = dict(small_model(model_type).config.values)
    for way in WAYS:
        sizes = {"micro_batch_size": 2, "sequence_length": 256, **way}
        with suppress(VramwiseError):
            estimate(
                {"model": config, "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": 2, "train": sizes}
            ).to_dict()
