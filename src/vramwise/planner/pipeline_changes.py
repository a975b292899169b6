"""Changes of an image or video pipeline: where weights wait, how the VAE decodes, a smaller denoiser."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.planner.changes import Asked, Change, Cost

_OFFLOADS = {
    "model": ("weights come when their model runs: slower", Cost.TIME),
    "group": ("layers come one ahead: slower", Cost.HOST_MEMORY),
    "sequential": ("every layer comes when it runs: much slower", Cost.HOST_MEMORY),
}
_ORDER = ("none", "model", "group", "sequential")
_FORMATS = {"fp8": "8-bit weights; a little quality", "bitsandbytes-int8": "8-bit weights; a little quality",
            "bitsandbytes-nf4": "4-bit weights; some quality"}  # fmt: skip


def is_pipeline(asked: Asked) -> bool:
    """Whether the answer is one of a pipeline: it states the pictures' size."""
    return bool(asked.settings.get("image_size"))


def pipeline_changes(asked: Asked) -> Iterator[Change]:
    """Every single change that may help."""
    settings = asked.settings
    if not settings.get("vae_tiling"):
        yield Change("vae_tiling", {"vae_tiling": True}, "faint seams", Cost.NOTHING)
    if int(str(settings.get("batch_size", 1))) > 1 and not settings.get("vae_slicing"):
        yield Change("vae_slicing", {"vae_slicing": True}, "none", Cost.NOTHING)
    for name in _ORDER[_ORDER.index(str(settings.get("offload") or "none")) + 1 :]:
        if name == "sequential" and str(settings.get("quantization")).startswith("bitsandbytes"):
            continue  # accelerate takes such weights apart one by one: nobody tests that
        cost, rank = _OFFLOADS[name]
        yield Change(f"offload {name}", {"offload": name}, cost, rank)
    if not settings.get("quantization"):
        for name, cost in _FORMATS.items():
            yield Change(f"quantization {name}", {"quantization": name}, cost, Cost.PRECISION)


def pipeline_combinations(asked: Asked) -> Iterator[Change]:
    """Several at once, for where no single one is enough."""
    settings = asked.settings
    if not settings.get("vae_tiling"):
        for name in ("model", "group"):
            cost, rank = _OFFLOADS[name]
            yield Change(f"offload {name}, vae_tiling", {"offload": name, "vae_tiling": True}, cost, rank)
    if not settings.get("quantization"):
        values = {"quantization": "bitsandbytes-nf4", "offload": "model", "vae_tiling": True}
        words = "quantization bitsandbytes-nf4, offload model, vae_tiling"
        yield Change(words, values, "4-bit weights; some quality; slower", Cost.PRECISION)
