"""Write src/vramwise/planner/sizes.csv: parameters, the longest text, and the least bytes that it
takes, of every model of the catalog that a family describes.

Run after the catalog or a family changes: python tools/build_sizes.py
"""

from __future__ import annotations

import gc
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.estimation import described_model
from vramwise.models.lengths import model_length
from vramwise.planner.bounds import EIGHT_BIT, FILE_TYPES, WIDE
from vramwise.planner.running import bounds_of
from vramwise.planner.sizes import line_digest
from vramwise.sources.catalog import names

TARGET = Path(__file__).parents[1] / "src/vramwise/planner/sizes.csv"


def main() -> None:
    """Describe all models and write their sizes."""
    gc.disable()
    sizes = "num_parameters,length,makes_text,published_format,pooled_bytes,fp8_bytes,least_cache_bytes"
    lines = [",".join(("id", "line", sizes, *FILE_TYPES))]
    for model_id in names().ids:
        try:
            model = described_model(model_id)[1]
            bounds = bounds_of(model)
        except VramwiseError:
            continue
        published, pooled = bounds.published_format, bounds.pooled_bytes
        eight = "" if published else pooled.get(EIGHT_BIT, "")
        lines.append(
            f"{model_id},{line_digest(model_id):08x},{bounds.num_parameters},{model_length(model)},"
            f"{'yes' if bounds.makes_text else ''},{published},{pooled.get(published or WIDE, '')},{eight},"
            f"{bounds.least_cache_bytes},{','.join(str(bounds.file_bytes.get(name, '')) for name in FILE_TYPES)}"
        )
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
