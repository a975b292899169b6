"""A small Gemma 3n, whose encoder of images has one size whatever the config, and batches for it."""

from __future__ import annotations

import csv
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from image_batches import Case, image_inputs, whole

from vramwise.models.execution import Images

TEXT: dict[str, Any] = {
    "model_type": "gemma3n_text", "head_dim": 8, "num_hidden_layers": 3, "num_kv_shared_layers": 0, "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 24, "vocab_size": 24, "laurel_rank": 4, "altup_num_inputs": 2,
    "rope_parameters": None, "intermediate_size": 40, "activation_sparsity_pattern": None, "pad_token_id": 0,
}  # fmt: skip
SOUND: dict[str, Any] = {
    "model_type": "gemma3n_audio", "vocab_size": 4, "vocab_offset": 28, "hidden_size": 16, "input_feat_size": 16,
    "conf_num_attention_heads": 2, "conf_num_hidden_layers": 1, "sscp_conv_channel_size": [4, 4],
}  # fmt: skip


def squares(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Pixels of squares, 32 on a side for each place of the last stage."""
    return {"pixel_values": torch.zeros(count, 3, 32 * images.rows, 32 * images.columns)}


CONFIG = whole(
    "gemma3n", {"model_type": "gemma3n_vision", "vocab_size": 4, "vocab_offset": 24}, TEXT, audio_config=SOUND
)  # fmt: skip
CASES: dict[str, Case] = {
    "places as tokens": (CONFIG, Images(1, 8, 8, tokens=256), squares),
    "pooled places": (CONFIG, Images(1, 16, 16, tokens=256), squares),
}
GOLDEN = Path(__file__).parent.parent / "golden" / "gemma3n_images.csv"


def rows() -> list[dict[str, str]]:
    """The runs, with what autograd saved in each."""
    return list(csv.DictReader(GOLDEN.read_text(encoding="utf-8").splitlines()[2:]))


def record() -> None:
    """Write the golden bytes anew; needs timm."""
    from saved_by_autograd import saved_by_autograd
    from test_saved_for_backward import completed
    from test_saved_with_images import PARTS

    comments, found = GOLDEN.read_text(encoding="utf-8").splitlines()[:2], rows()
    for row in found:
        config, images, _ = CASES[row["case"]]
        sequence, batch = images.tokens + 3, int(row["batch"])
        row["bytes"] = str(saved_by_autograd(
            completed(deepcopy(config)), "causal-lm", attention=row["attention"], precision=row["precision"],
            batch=batch, sequence=sequence, device="cpu", trainable=PARTS[row["part"]],
            others=image_inputs(CASES[row["case"]], batch, sequence),
        ))  # fmt: skip
    lines = [",".join(found[0]), *(",".join(row.values()) for row in found)]
    GOLDEN.write_text("\n".join([*comments, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
