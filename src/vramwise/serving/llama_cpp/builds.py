"""Builds of llama.cpp and ik_llama.cpp with which something changed, and which build a version or a day means."""

from __future__ import annotations

import re

from vramwise.engines.llama_cpp import RECORD
from vramwise.engines.ollama import RECORD as OLLAMA
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.versions import version_of

LATEST_BUILD = 10**6
WINDOWED_CACHE_BUILD = 5427  # PR 13194 (May 2025): sliding-window layers get a cache of their own size
LATENT_CACHE_BUILD = 5130  # PR 12801 (April 2025): multi-head latent attention keeps the latent
NO_LATENT_VALUES_BUILD = 5390  # values are read from the keys' latent; b5331 still printed 576 + 512 elements
AUTO_CONTEXT_BUILD = 6895  # context starts from the model's own length
AUTO_FLASH_BUILD = 6325  # flash attention on where it is supported (logs of b7342 and later say auto)
OWN_RUNNER_BUILD = 7342  # stands for the runners that ollama had of its own before v0.30.0
FUSED_GATES_BUILD = 5787  # PR 14158 (June 2025): gated activations are one operation with an output of its own
VALUE_INDEX_BUILD = 6072  # PR 14959 (August 2025): cells are written by index; b6209 prints it
IK_BOUND_SCORES_BUILD = 3576  # ik_llama.cpp e787c0014 (March 2025): -amb
IK_HALF_MASK_BUILD = 4100  # ik_llama.cpp 4e24d48e6 (October 2025, 3907; tags of a fork with logs run ahead by 180)
IK_SLOTS_ALONE_BUILD = 3953  # ik_llama.cpp 7978f0499 (November 2025): llama-server has no sequence of the prompt's own
IK_PREDICTION_CACHE_BUILD = 4100  # ik_llama.cpp 1f072ab13 (October 2025, 3918): layers that are not used have no cache
IK_CHUNKED_LATENT_BUILD = 4156  # ik_llama.cpp b85a2a50d (January 2026): heads of latent attention one part at a time
FOUR_SLOTS_BUILD = 7400  # llama-server: four slots over one cache where -np is not given
TWO_INPUT_COPIES_BUILD = 8000  # host buffers of b8211 and later hold two embedding inputs, b7342 one
OUTPUT_FIRST_BUILD = 7400  # PR 16653 (December 2025): the output counts as a layer and goes to the GPU first
HALF_MASK_BUILD = 9390  # PR 23764 (end of May 2026): the mask is f16 with flash attention; b9272 still had f32
INDEXER_CACHE_BUILD = 9430  # PR 23346 (June 2026): keys of DeepSeek 3.2's indexer have a cache; b8532 had none
TURNED_CACHE_BUILD = 8640  # PR 21038 (April 2026): queries, keys and values are turned for quantized caches
CACHE_COPIES_BUILD = 9455  # PR 23907 (June 2026): 16-bit copies of quantized caches are part of the compute buffer
UNREAD_COPIES_BUILD = 10586  # by August 2026 (0c1e57098): inputs that nothing reads are copied too; b9665 does not
VULKAN_ORDER_BUILD = 7150  # PR 17475 (end of November 2025): prompts' graphs are put in order too
METAL_ORDER_BUILD = 8010  # PR 19555 (February 2026): Metal moves most operations; before (PR 15929) it moved fewer
METAL_WIDE_CACHE_BUILD = 10_600  # PR 27390 (August 20, 2026): room for a cache in 16 bits beside flash attention
METAL_TABLE_BUILD = 11_000  # PRs 28164, 28948 (September 2026): a table of runs, whose inputs are kept
KEPT_FOR_KERNELS_BUILD = 10_800  # PRs 27301, 25952 (merged between September 2, b10760, and 8, b10864, 2026)
FEW_OUTPUTS_BUILD = 9430  # PR 23861 (by June 2, 2026): llama-server keeps room for the logits of one token a slot
IK_BY_BYTES_BUILD = 4327  # ik_llama.cpp PR 1466 (March 2026): devices are filled by bytes, not by layers

_BUILD = re.compile(r"\bb(\d{3,5})\b|\bbuild:? (\d{3,5})\b|^(?:version: )?(\d{4,5})(?= \()")
_DATE = re.compile(r"\b(20\d\d)-(\d\d)-(\d\d)\b")
_DATED_BUILDS = tuple((day, int(build.removeprefix("b"))) for build, day in RECORD.dated)
"""Days of llama.cpp's builds: a version that is a day lies between the two next to it, by the days that passed."""
_LAST_RUNNERS_OWN = "2025-12-10"
_OLLAMA_0_30 = dict(OLLAMA.dated)["0.30.0"]  # before, ollama built runners of its own from older sources


def build_of(version: str | None) -> int:
    """Build number in `b5863 (a4575513)`, `9293 (1acee6bf8)`, `0.3.0 (build 10621, …)`; the latest where none is."""
    found = _BUILD.search(version or "")
    if found is not None:
        return int(found.group(found.lastindex or 1))
    day = _DATE.search(version or "")
    if day is None:
        return LATEST_BUILD
    if "ollama" in (version or "") and _LAST_RUNNERS_OWN < day.group() < _OLLAMA_0_30:
        return OWN_RUNNER_BUILD
    return _build_on(day.group())


def build_that_runs(given: ServeSettings) -> int:
    """That of a version; a release of ollama whose day is known has the build of that day."""
    build = build_of(given.engine_version)
    if given.engine != "ollama" or build != LATEST_BUILD:
        return build
    minor = version_of(given.engine_version)[:2]
    return next((_build_on(day) for name, day in OLLAMA.dated if version_of(name)[:2] == minor), LATEST_BUILD)


def _build_on(day: str) -> int:
    """The build of a day; 0 before the first that is known, the latest for a day that is none."""
    from datetime import date

    later = next((i for i, (known, _) in enumerate(_DATED_BUILDS) if known > day), None)
    if not later:
        if later == 0:
            return 0
        later = len(_DATED_BUILDS) - 1  # builds go on at the last pace
    (start, first), (end, last) = _DATED_BUILDS[later - 1], _DATED_BUILDS[later]
    try:
        passed, whole = (date.fromisoformat(until) - date.fromisoformat(start) for until in (day, end))
    except ValueError:  # the 31st of a short month
        return LATEST_BUILD
    return first + (last - first) * passed // whole
