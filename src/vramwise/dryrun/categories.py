"""What a tensor of a step is called, with the estimate's own words."""

from __future__ import annotations

from vramwise.dryrun.events import Life

CARRIED = "latents and prompts"
"""What a pipeline's frame holds from one of its models to the next."""
_FORWARD = ("forward", "loss", "forward return")


def category(life: Life) -> str:
    """The name that it was given, else one by the moment that made it and whether backward found it alive."""
    if life.name:
        return life.name
    moment = life.moment.partition("|")[2]
    if moment in ("loss", "forward return", "backward: head"):
        return "logits and loss"
    if moment in _FORWARD:
        return "activations" if life.lasted else "forward temporaries"
    if life.backward or moment.startswith("backward"):
        return "backward temporaries"
    return {
        "clipping": "gradient norms", "optimizer step": "optimizer temporaries", "inputs": "inputs",
        "prefill": "activations", "decode": "activations",
        "text encoder": "activations", "denoise step": "activations", "VAE decode": "activations",
    }.get(moment, "temporaries")  # fmt: skip
