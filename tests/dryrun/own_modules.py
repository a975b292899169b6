"""Modules of a user's own, for the dry run."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 128


class Net(nn.Module):
    """Two linear layers a block, and a loss of its own."""

    def __init__(self, width: int = WIDTH, depth: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for block in self.blocks:
            x = torch.relu(block(x))
        return {"loss": x.float().pow(2).mean(), "out": x}


class Deciding(nn.Module):
    """As much as is chosen by values, and a branch that a value takes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x[x[:, 0] > 0]
        out = self.head(kept)
        if out.sum().item() > 3:
            out = torch.cat([out] * 8)
        return out


class Picture(nn.Module):
    """Two inputs by name, no loss: the mean of what comes out is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 16, 16)
        self.words = nn.Embedding(1000, 64)

    def forward(self, pixels: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.patches(pixels).flatten(2).mean(-1) + self.words(tokens).mean(1),)


def made() -> list[int]:
    """No module."""
    return [1]
