"""What test_block.py runs in a process of its own: tests on a card that is not there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import vramwise

MIB = 2**20


def a_step(width):
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    loss = model(torch.randn(64, width).to("cuda")).mean()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.vram("2GiB")
def test_fits():
    loss = a_step(512)
    assert f"loss {loss.item():.3f} {loss:.2f}" == "loss nan nan"
    assert torch.arange(3).tolist() == [0, 1, 2]
    assert torch.cuda.get_device_properties(0).total_memory == 2 * 1024 * MIB


@pytest.mark.vram("2GiB", gpu="4090")
def test_does_not_fit():
    a_step(16_384)


@pytest.mark.vram("2GiB")
def test_decides():
    if a_step(64).item() > 3:
        raise AssertionError("nobody knows")


def test_a_block_says_what_it_took():
    with vramwise.dry_run(gpu="h100") as seen:
        a_step(4096)
        assert torch.cuda.max_memory_allocated() >= 4 * 4096 * 4096 * 4
        assert torch.cuda.get_device_name() == "NVIDIA H100 SXM5 80GB"
        with pytest.raises(vramwise.VramwiseError, match="one block at a time"), vramwise.dry_run():
            pass
    weights = 4 * (4096 * 4096 + 2 * 4096 + 1)
    assert 4 * weights < seen.peak_allocated < 6 * weights + 80 * MIB
    assert seen.fits
    assert any("in_a_block.py" in place for place in seen.largest())
    assert not torch.cuda.is_available()


def test_a_mask_of_ones_hides_nothing_until_something_is_written_to_it():
    with vramwise.dry_run(gpu="h100"):
        mask = torch.ones(2, 8, device="cuda")
        assert mask.to(torch.bool).is_whole
        mask[0, :3] = 0
        assert not mask.to(torch.bool).is_whole


def test_autocast_checkpointing_and_attention_run():
    from torch.utils.checkpoint import checkpoint

    layer = None
    with vramwise.dry_run(gpu="a100-sxm-80gb") as seen:
        layer = nn.TransformerEncoderLayer(256, 8, batch_first=True, device="cuda")
        x = torch.randn(4, 1024, 256, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = checkpoint(layer, x, use_reentrant=False)
        out.float().mean().backward()
    scores = 4 * 8 * 1024 * 1024 * 2
    groups = [group for found in seen.who.values() for group in found]
    assert all(group["bytes"] < scores * group["count"] for group in groups)  # flash keeps none, as on the card
