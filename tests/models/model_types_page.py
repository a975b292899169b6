"""docs/model-types.md: which model types are exact, close or unknown, read off the registry and the tests.

Write it anew: python tests/models/model_types_page.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
if __name__ == "__main__":  # pytest has read it already
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import conftest  # noqa: F401  # registers the profiles that tests ask for

import transformers
from encoder_image_batches import CASES as ENCODER_CASES
from remote_code_pairs import PAIRS, REMOTE_CODE_TYPES
from test_caches_match_transformers import NOT_RUN as NO_CACHE_RUN
from test_parameters_match_transformers import NOT_BUILT
from test_saved_for_backward import NOT_RUN as NO_FORWARD_RUN
from test_saved_with_images import CASES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from vramwise.models.family_of_type import FAMILY_OF_TYPE
from vramwise.models.images import types_with_rule

_HEAD = """# Model types

*Is my model's architecture described, and how exactly?*

Written by `python tests/models/model_types_page.py` from the registry and the tests.

Of {described} described types, {exact} are exact and {close} close. transformers {version} has {causal} types of causal
language models; {known} of them are described.

- **exact**: for random small configs and the class's default, names, shapes and ties of all parameters equal the real
  class's on the meta device, what autograd saves equals the real module's byte for byte, and the caches after a prefill
  and a token more equal the real ones.
- **close**: the reason says what is not compared or not counted; an estimate's notes say it too where numbers are
  missing.
- **unknown**: weights come from safetensors headers or from transformers' own class, and the result says so;
  `--like TYPE` describes the config as another type.

| model type | status | what is not compared |
|---|---|---|"""
PAGE = Path(__file__).parents[2] / "docs" / "model-types.md"
# Recorded rows stand in for a class that is too slow to run, other tests for other inputs; what takes no text saves
# nothing for it.
_AS_GOOD_AS_RUN = ("held against", "takes images", "the class has no forward pass")


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A model type: `exact`, or `close` with the reason why something of it is not compared."""

    name: str
    status: str
    reason: str

    @property
    def line(self) -> str:
        return f"| `{self.name}` | {self.status} | {self.reason} |"


def row_of(name: str) -> TypeRow:
    """What the tests compare of a described type."""
    if name in REMOTE_CODE_TYPES:
        compared = "tensors equal an architecture of transformers" if name in PAIRS else "totals equal published ones"
        return TypeRow(name, "close", f"its code comes with checkpoints: {compared}")
    if name in NOT_BUILT:
        return TypeRow(name, "close", NOT_BUILT[name])
    reason = NO_FORWARD_RUN.get(name, "")
    if reason and not any(words in reason for words in _AS_GOOD_AS_RUN):
        return TypeRow(name, "close", f"parameters are exact; {reason}")
    cache = NO_CACHE_RUN.get(name, "")
    return TypeRow(name, "exact", f"no cache compared: {cache}" if cache else "")


def rows() -> list[TypeRow]:
    """Every described type."""
    return [row_of(name) for name in sorted(FAMILY_OF_TYPE)]


def unknown_types() -> list[str]:
    """Causal language models of transformers that no family describes."""
    return sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(FAMILY_OF_TYPE))


def with_images() -> str:
    """Types that train with images: compared, or described as another is."""
    compared = {config["model_type"] for config, *_ in (CASES | ENCODER_CASES).values()}
    trained, counted = (", ".join(f"`{name}`" for name in sorted(names)) for names in (
        compared & set(types_with_rule()), set(types_with_rule()) - compared - REMOTE_CODE_TYPES))  # fmt: skip
    return f"""## Images in training

`vramwise estimate MODEL --task train --images-per-sequence N --image-size WxH` counts what the vision part, the
projector and the text keep. What autograd saves of a batch with images equals the real classes' byte for byte for
{trained}.

By the same code, but not compared with images themselves: {counted}. Others are refused.
"""


def page() -> str:
    """The whole page."""
    described, unknown = rows(), unknown_types()
    exact = sum(row.status == "exact" for row in described)
    causal = len(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    named = ", ".join(f"`{name}`" for name in unknown)
    head = _HEAD.format(
        described=len(described), exact=exact, close=len(described) - exact, version=transformers.__version__,
        causal=causal, known=causal - len(unknown),
    )  # fmt: skip
    tail = f"Unknown causal language models of transformers ({len(unknown)}): {named or 'none'}.\n"
    return "\n".join([head, *(row.line for row in described), "", tail, with_images()])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
