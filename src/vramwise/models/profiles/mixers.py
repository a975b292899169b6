"""State-space mixers as transformers 5.23 runs them without fused kernels."""

from __future__ import annotations


class MixerPaths:
    """Mamba operations."""
