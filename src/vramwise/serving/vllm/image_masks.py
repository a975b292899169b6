"""The mask that keeps the images of one batch apart in Pixtral's tower, where no kernel is told their lengths.

vLLM 0.12.0 to 0.28.0 models/pixtral.py: transformers' generate_block_attention_mask over all patches of a batch, for
torch's attention. Before, xformers came with vLLM and masks by lengths; from 0.29.0 on the tower's kernels do.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.serving.vllm.settings import Resolved
from vramwise.units import round_up

ALIGNED = 16  # aten/src/ATen/native/transformers/attention.cpp pad_bias: a mask of other rows is copied for each layer
ATTENTION_WIDTHS = 7  # residual, queries, keys and values, queries and keys turned, and what comes out


@record
class ImageMask:
    """The mask, its padded copy, and what attention holds beside them."""

    bytes: int
    copied: int
    attention: int

    def beside(self, running: int) -> int:
        """The fuller of the moment of `running` bytes and attention's."""
        return self.bytes + max(running, self.copied + self.attention)


def masked_images(model: Model, r: Resolved, patches: int) -> ImageMask | None:
    """None for towers and versions that make no mask."""
    vision = model.config.table("vision_config")
    if vision is None or not has_fact("vllm", "masks_images", vision.model_type, r.version):
        return None
    element = r.storage.bytes_per_element
    padded = round_up(patches, ALIGNED)
    widths = ATTENTION_WIDTHS * vision.size("hidden_size", default=1024)
    return ImageMask(
        patches * patches * element, patches * padded * element if padded != patches else 0, patches * widths * element
    )
