"""Experts chosen by sigmoid scores: DeepSeek V3's router, and scores corrected for the choice only."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.config import Config
from vramwise.models.layers.mixture import Mixture, experts, grouped

_KEYS = ("n_routed_experts", "num_local_experts", "num_experts")


def deepseek_style(c: Config, count: int | None) -> Mixture:
    """The router of DeepSeek V3 and its shared experts."""
    normalized = c.flag("norm_topk_prob", c.model_type != "dots1")
    e = experts(c, count, keys=_KEYS, routing="deepseek_v3", normalized=normalized)
    shared = c.size("n_shared_experts", "num_shared_experts", default=1)
    return Mixture(e, routing=grouped(c, e), shared=shared * e.intermediate_size)


def corrected(
    c: Config, count: int | None, *, keys: Sequence[str] = _KEYS, shared: int = 0, router: str = "mlp.gate",
    **routing: object,
) -> Mixture:  # fmt: skip
    """Sigmoid scores, corrected for the choice only, and normalized weights; `keys` may hold the number of experts."""
    e = experts(c, count, keys=keys, routing="corrected", router=router)
    defaults = {"widened": False, "in_place": False, "epsilon": True, "scaled": True, "cast": False, "capped": False}
    return Mixture(e, routing={**defaults, **routing}, shared=shared)
