"""Facts of a model that the overview adds: what its files hold beyond it, and what an image takes."""

from __future__ import annotations

from vramwise.cli.screens.paint import Line, screen_width, wrapped_text
from vramwise.errors import UsageError, clipped
from vramwise.formats.safetensors import StoredWeights
from vramwise.models import Model
from vramwise.models.images import ImageTokens, image_tokens, types_with_rule
from vramwise.records import record
from vramwise.scenario.pixels import pixels_of
from vramwise.serving.common.checkpoint import FileContents, file_contents
from vramwise.serving.common.encoder import tower_bytes
from vramwise.units import counted, format_bytes

_BF16_BYTES = 2


@record
class ImageCost:
    """One image of `width` × `height`: its tokens, and bytes that the vision part holds while it computes in bf16."""

    width: int
    height: int
    found: ImageTokens
    activation_bytes: int

    def to_dict(self) -> dict[str, object]:
        found = self.found
        return {
            "width": self.width, "height": self.height, "tokens": found.tokens, "patches": found.patches,
            "cross_tokens": found.cross_tokens, "activation_bytes": self.activation_bytes, "rule": found.rule,
        }  # fmt: skip


def image_cost(model: Model, size: str) -> ImageCost:
    """What an image of `size` (WIDTHxHEIGHT) takes. Raises UsageError for no size and for a model without a rule."""
    width, height = pixels_of(size, "--image")
    found = image_tokens(model.config, width, height)
    if found is None:
        kind = clipped(model.config.model_type)
        raise UsageError(f"--image: no rule for {kind}; there are rules for {', '.join(types_with_rule())}")
    return ImageCost(width, height, found, tower_bytes(model, found.patches, _BF16_BYTES))


def files_table(model: Model, stored: StoredWeights | None) -> dict[str, object]:
    """What the files hold, for JSON."""
    files = file_contents(model)
    on_disk = None
    if stored is not None:
        values = sum(tensor.numel for tensor in stored.tensors)
        on_disk = {"num_values": values, "bytes": stored.bytes, "tensors": len(stored.tensors), "path": stored.path,
                   **({"files_not_read": stored.unread_files} if stored.unread_files else {})}  # fmt: skip
    return {
        "on_disk": on_disk,
        "num_values": files.num_values, "beyond_the_model": files.beyond_the_model(),
        "with_tied_copies": files.with_tied_copies, "not_counted": files.unknown,
    }  # fmt: skip


def fact_lines(model: Model, image: ImageCost | None, stored: StoredWeights | None) -> list[Line]:
    """Lines below the headline; none for a model whose files hold what it is."""
    lines = [*_file_lines(file_contents(model))]
    if stored is not None:
        values, tensors = sum(tensor.numel for tensor in stored.tensors), len(stored.tensors)
        kinds = ", ".join(sorted({tensor.dtype for tensor in stored.tensors}))
        size = format_bytes(stored.bytes)
        lines.append(
            f"on disk: {values:,} values in {counted(tensors, 'tensor')} ({kinds}), {size}, says {stored.path}"
        )
        if stored.note:
            lines.append(stored.note)
    if image is not None:
        found = image.found
        held = format_bytes(image.activation_bytes, "MiB", 0)
        cross = f", {found.cross_tokens:,} states for cross-attention" if found.cross_tokens else ""
        many = "token" if found.tokens == 1 else "tokens"
        lines.append(
            f"an image of {image.width:,} × {image.height:,} pixels takes {found.tokens:,} {many}{cross} and, in the "
            f"vision part, {found.patches:,} patches with {held} of activations in bf16: {found.rule}"
        )
    return [piece for line in lines for piece in wrapped_text("", line, screen_width())]


def _file_lines(files: FileContents) -> list[str]:
    lines = []
    more = files.beyond_the_model()
    if more:
        pieces = ", ".join(f"{name} {count:,}" for name, count in more.items())
        lines.append(f"{files.num_values:,} values in the files: the model and {pieces}")
    copies = files.with_tied_copies - files.num_values
    if copies > 0 and not files.untied:
        lines.append(f"{files.with_tied_copies:,} values in files that keep tied weights twice")
    if files.unknown:
        lines.append(f"not counted of the files: {files.unknown}")
    return lines
