"""Write src/vramwise/planner/sizes.csv: parameters, and the longest text, of every model of the
catalog that a family describes.

Run after the catalog or a family changes: python tools/build_sizes.py
"""

from __future__ import annotations

import gc
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.estimation import described_model
from vramwise.models.lengths import model_length
from vramwise.planner.sizes import line_digest
from vramwise.sources.catalog import names

TARGET = Path(__file__).parents[1] / "src/vramwise/planner/sizes.csv"


def main() -> None:
    """Describe all models and write their sizes."""
    gc.disable()
    lines = ["id,line,num_parameters,length"]
    for model_id in names().ids:
        try:
            model = described_model(model_id)[1]
        except VramwiseError:
            continue
        lines.append(f"{model_id},{line_digest(model_id):08x},{model.num_parameters},{model_length(model)}")
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
