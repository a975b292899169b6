"""Random whole scenarios over every model and GPU of the catalogs: one strategy for each kind of job.

Beside them: pipelines of Diffusers, small configs of every type, unequal cards, a stated driver, and cards of which
others hold a part or a part must stay free.
"""

from __future__ import annotations

import sys
from math import prod
from pathlib import Path
from typing import Any

import drawn_settings as drawn
from drawn_settings import Table, one
from hypothesis import strategies as st

from vramwise.hardware.gpu import gpus
from vramwise.sources.catalog import catalog
from vramwise.sources.pipelines import pipeline_names

sys.path.append(str(Path(__file__).parents[1] / "models"))
from config_strategies import STRATEGIES as CONFIGS

MODELS = tuple(sorted(entry.id for entry in catalog()))
WITH_EXPERTS = frozenset(entry.id for entry in catalog() if any("expert" in key for key in entry.hyperparameters))
READS_IMAGES = tuple(sorted(entry.id for entry in catalog() if "vision_config" in entry.hyperparameters))
PIPELINES = (*pipeline_names(), *(f"{name}:{part}" for name in pipeline_names()[:4] for part in ("transformer", "vae")))
TYPES = tuple(sorted(CONFIGS))
CLASSIFIERS = {
    "bert": "BertForSequenceClassification",
    "roberta": "RobertaForSequenceClassification",
    "xlm-roberta": "XLMRobertaForSequenceClassification",
}
CARDS = tuple(sorted(gpu.id for gpu in gpus()))
APPLE = tuple(card for card in CARDS if card.startswith("apple"))
# A few cards that people have come up as often as all the others together.
COMMON_CARDS = ("h100-sxm-80gb", "a100-sxm-80gb", "rtx-4090", "t4", "l40s", "rtx-3060-12gb", "v100-sxm-32gb", "b200")

MOST_SETTINGS = 6
MOST_DETAILS = 2
SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")


@st.composite
def some_of(draw: st.DrawFn, table: Table, most: int = MOST_SETTINGS) -> dict[str, Any]:
    """A few keys of a table with values: whole tables at random would contradict themselves nearly always."""
    keys = draw(st.lists(st.sampled_from(sorted(table)), unique=True, max_size=most))
    return {key: draw(table[key]) for key in keys}


def details(table: Table) -> st.SearchStrategy[dict[str, Any]]:
    """One or two keys that few people set, in every second scenario."""
    return st.just({}) | some_of(table, MOST_DETAILS)


@st.composite
def config(draw: st.DrawFn) -> dict[str, Any]:
    """A whole config.json of small sizes, of any type; of an encoder sometimes as a reranker."""
    model_type = draw(st.sampled_from(TYPES))
    small = {**draw(CONFIGS[model_type]()), "model_type": model_type}
    if model_type in CLASSIFIERS and draw(st.booleans()):
        small |= {"architectures": [CLASSIFIERS[model_type]], "num_labels": draw(one(1, 3))}
    return small


def rarely(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any], times: int = 7) -> st.SearchStrategy[Any]:
    """`rare` once in so many draws."""
    return one(*range(times)).flatmap(lambda place: usual if place else rare)


MODEL = rarely(st.sampled_from(MODELS), config())


@st.composite
def cards(draw: st.DrawFn, num_gpus: int | None) -> dict[str, Any]:
    """What stands for the cards: one name with a number, or several names."""
    if draw(rarely(st.just(0), st.just(1), 12)):
        return {"gpus": draw(st.lists(one(*COMMON_CARDS), min_size=num_gpus or 2, max_size=num_gpus or 3))}
    found = {"gpu": draw(one(*COMMON_CARDS) | one(*CARDS))}
    return found if num_gpus is None else {**found, "num_gpus": num_gpus}


@st.composite
def _scenario(
    draw: st.DrawFn, task: str, table: dict[str, Any], num_gpus: int | None = None,
    models: st.SearchStrategy[Any] = MODEL, key: str = "",
) -> dict[str, Any]:  # fmt: skip
    scenario = {"model": draw(models), "task": task, **draw(cards(num_gpus))}
    scenario |= draw(details(drawn.ROOM)) | draw(rarely(st.just({}), some_of(drawn.MACHINE, MOST_DETAILS)))
    return scenario | ({key or task: table} if table else {})


@st.composite
def _step(draw: st.DrawFn) -> dict[str, Any]:
    """A step, with what belongs to a method, to 8 bits and to other models on the card where it has these."""
    table = draw(some_of(drawn.STEP)) | draw(details(drawn.STEP_DETAILS))
    if table.get("method") in ("lora", "qlora"):
        table |= draw(some_of(drawn.ADAPTERS))
    if table.get("precision") == "fp8-mixed":
        table |= draw(details(drawn.FP8))
    if any(name.startswith("rollout") for name in table.get("extra_models", ())):
        table |= {"rollout_gpu_memory_utilization": 0.4} | draw(some_of(drawn.ROLLOUT))
    return table


@st.composite
def training_on_one_gpu(draw: st.DrawFn) -> dict[str, Any]:
    table = draw(_step())
    if draw(rarely(st.just(0), st.just(1))):
        table |= {"images_per_sequence": 1} | draw(some_of(drawn.IMAGES))
        return draw(_scenario("train", table, models=st.sampled_from(READS_IMAGES)))
    return draw(_scenario("train", table))


@st.composite
def training_on_several(draw: st.DrawFn) -> dict[str, Any]:
    table = draw(_step()) | draw(some_of(drawn.LAYOUT)) | draw(details(drawn.LAYOUT_DETAILS))
    if table.get("fsdp", "none") != "none":
        table.pop("zero_stage", None)
    if table.get("zero_stage") == 3:
        table |= draw(some_of(drawn.ZERO_3, 3))
    if table.get("pipeline_parallel_size", 1) > 1:
        table |= draw(details(drawn.STAGES))
    gpus = draw(one(1, 2, 8)) * prod(table.get(split, 1) for split in SPLITS)
    scenario = draw(_scenario("train", table, max(2, gpus)))
    if str(scenario["model"]) in WITH_EXPERTS and draw(st.booleans()):
        scenario["train"] = table | {"expert_parallel_size": 2} | draw(details(drawn.EXPERTS))
    return scenario


@st.composite
def serving(draw: st.DrawFn, engines: tuple[str, ...], table: Table) -> dict[str, Any]:
    settings = draw(some_of(table))
    if "gguf_quant" in settings:
        settings["quantization"] = "gguf"
    return draw(_scenario("serve", {"engine": draw(one(*engines)), **settings}))


@st.composite
def llama_cpp(draw: st.DrawFn) -> dict[str, Any]:
    """llama.cpp and what builds on it, on no card, one or several."""
    table = {"engine": draw(one("llama.cpp", "ollama")), **draw(some_of(drawn.LLAMA_CPP))}
    if table["engine"] == "llama.cpp":
        table |= draw(rarely(st.just({}), some_of(drawn.IK_LLAMA_CPP), 4))
    return draw(_scenario("serve", table, draw(one(None, None, None, 0, 2))))


@st.composite
def mlx(draw: st.DrawFn) -> dict[str, Any]:
    """MLX, on a chip of Apple nearly always."""
    scenario = draw(_scenario("serve", {"engine": "mlx", **draw(some_of(drawn.MLX))}))
    if "gpu" in scenario:
        scenario["gpu"] = draw(rarely(st.sampled_from(APPLE), st.just(scenario["gpu"])))
    return scenario


@st.composite
def generation(draw: st.DrawFn) -> dict[str, Any]:
    return draw(_scenario("generate", draw(some_of(drawn.GENERATION))))


@st.composite
def pictures(draw: st.DrawFn) -> dict[str, Any]:
    """Images and videos that a pipeline of Diffusers makes, or one of its models alone."""
    return draw(_scenario("generate", draw(some_of(drawn.PICTURES)), models=st.sampled_from(PIPELINES)))


@st.composite
def loading(draw: st.DrawFn) -> dict[str, Any]:
    """Weights alone, sometimes as an engine loads them."""
    engine = draw(one({}, {"engine": "vllm"}, {"engine": "llama.cpp"}, {"engine": "mlx"}, {"engine": "sglang"}))
    models = rarely(MODEL, st.sampled_from(PIPELINES))
    return draw(_scenario("load", engine, models=models, key="serve"))


JOBS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "train on one GPU": training_on_one_gpu(),
    "train on several": training_on_several(),
    "vllm": serving(("vllm",), drawn.VLLM),
    "sglang": serving(("sglang",), drawn.SGLANG),
    "tgi and tensorrt-llm": serving(("tgi", "tensorrt-llm"), drawn.POOL),
    "transformers serve": serving(("transformers",), drawn.TRANSFORMERS),
    "llama.cpp": llama_cpp(),
    "mlx": mlx(),
    "generate": generation(),
    "pictures": pictures(),
    "load": loading(),
}
SHARE = {
    "train on one GPU": 23, "train on several": 19, "vllm": 19, "sglang": 8, "tgi and tensorrt-llm": 4,
    "transformers serve": 2, "llama.cpp": 10, "mlx": 2, "generate": 8, "pictures": 3, "load": 2,
}  # fmt: skip
"""Of a hundred examples, how many each kind of job gets."""
