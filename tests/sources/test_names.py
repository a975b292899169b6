"""Names of models as people write them."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import SourceError
from vramwise.sources import model_elsewhere, resolve
from vramwise.sources.catalog import catalog
from vramwise.sources.known_names import near

NAMES = {
    "meta-llama/Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "meta-llama/Meta-Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
    "META-LLAMA/llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "llama 3.1 8b": "meta-llama/Llama-3.1-8B",
    "llama3.1 8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama-3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "llama 3 8b": "meta-llama/Llama-3-8B",
    "Llama-2-7b-hf": "meta-llama/Llama-2-7b-hf",
    "llama 2 7b": "meta-llama/Llama-2-7b-hf",
    "llama-65b": "huggyllama/llama-65b",
    "qwen2.5 7b instruct": "Qwen/Qwen2.5-7B-Instruct",
    "qwen 2.5 7b": "Qwen/Qwen2.5-7B",
    "qwen3 8b": "Qwen/Qwen3-8B",
    "mixtral 8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "gpt2": "openai-community/gpt2",
    "gpt2-xl": "openai-community/gpt2-xl",
    "bert-base-cased": "google-bert/bert-base-cased",
    "deepseek v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "gpt-oss 20b": "openai/gpt-oss-20b",
    "phi 4": "microsoft/phi-4",
    "opt 125m": "facebook/opt-125m",
    "zai-org/GLM-4-9B-0414": "zai-org/GLM-4-9B-0414",
    "https://huggingface.co/meta-llama/Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "https://huggingface.co/meta-llama/Llama-3.1-8B/tree/main": "meta-llama/Llama-3.1-8B",
    "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json?download=true": "Qwen/Qwen3-8B",
    "https://huggingface.co/gpt2": "openai-community/gpt2",
    "http://hf.co/openai/gpt-oss-20b/": "openai/gpt-oss-20b",
    "https://www.modelscope.cn/models/Qwen/Qwen3-8B/summary": "Qwen/Qwen3-8B",
}


@pytest.mark.parametrize(("name", "model_id"), NAMES.items())
def test_names_people_use(name: str, model_id: str) -> None:
    assert resolve(name).id == model_id


def test_a_size_that_only_the_base_family_has_is_that_of_the_base() -> None:
    source = resolve("vicuna 65B")
    assert source.id == "huggyllama/llama-65b"
    assert source.stands_in
    assert 'no "vicuna 65B" is known: took huggyllama/llama-65b' in str(source.note)
    for name in ("vicuna-66b", "qwen-40b", "vicuna"):  # no base of this size, of this family itself, no size
        with suppress(SourceError):
            assert not resolve(name).stands_in


def test_a_part_of_a_name_is_told() -> None:
    assert resolve("dolly 7b").note == '"dolly 7b" taken as databricks/dolly-v2-7b'
    assert resolve("qwen3 8b").note is None


def test_a_variant_is_told() -> None:
    assert resolve("deepseek-ai/DeepSeek-V3-0324").note == (
        "deepseek-ai/DeepSeek-V3-0324: sizes of deepseek-ai/DeepSeek-V3, the same architecture"
    )


def test_a_mirror_is_told() -> None:
    source = resolve("unsloth/Llama-3.1-8B")
    assert source.id == "meta-llama/Llama-3.1-8B"
    assert "unsloth" in str(source.note)


@pytest.mark.parametrize(
    ("name", "taken", "others"),
    [
        ("mistral-7b", "mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-v0.1, mistralai/Mistral-7B-Instruct-v0.3"),
        ("llama3.1", "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-70B, meta-llama/Meta-Llama-3.1-405B"),
        ("llama 8b", "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3-8B, meta-llama/Llama-3.1-8B-Instruct"),
        ("qwen3", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B-Base, Qwen/Qwen3-14B"),
        ("mistral nemo", "mistralai/Mistral-Nemo-Base-2407", "mistralai/Mistral-Nemo-Instruct-2407"),
        ("mistral 7b instruct", "mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mistral-7B-Instruct-v0.2"),
        ("mixtral", "mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x22B-v0.1"),
        ("gemma 3", "google/gemma-3-12b-pt", "google/gemma-3-4b-pt, google/gemma-3-27b-pt"),
        ("kimi k", "moonshotai/Kimi-K3", "moonshotai/Kimi-K2.6, moonshotai/Kimi-K2.5"),
    ],
)
def test_a_name_of_several_models_takes_the_newest_base_and_names_the_others(
    name: str, taken: str, others: str
) -> None:
    source = resolve(name)
    assert source.id == taken
    assert f'"{name}" fits several models: took {taken} (others: {others}' in str(source.note)
    assert source.others[0] in others


def test_a_guess_says_nothing_about_a_path_elsewhere() -> None:
    assert model_elsewhere("/data/models/Qwen3-8B") is not None
    assert model_elsewhere("/data/models/llama") is None


@pytest.mark.parametrize("letter", "tc")
def test_a_letter_is_no_name(letter: str) -> None:
    """Though t5-small and c4ai-command-r begin with one."""
    with pytest.raises(SourceError, match=f'^unknown model "{letter}"'):
        resolve(letter)


@pytest.mark.parametrize("name", ["llama-9", "someone/gpt2", "x", "4", "instruct", "", "  ", "v", "a" * 600, "hf"])
def test_what_is_no_model_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(SourceError) as caught:
        resolve(name)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(SourceError, match=r"did you mean openai-community/gpt2.*vramwise models lists all"):
        resolve("someone/gpt2")


@pytest.mark.parametrize(
    "url",
    ["https://example.com/a/b", "https://huggingface.co/", "https://huggingface.co/datasets/a/b", "ftp://x"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(SourceError, match=r"https://huggingface\.co/ORG/NAME"):
        resolve(url)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("model.gguf", r"there is no such file"),
        ("./a/model-00001-of-00002.safetensors", "there is no such file"),
    ],
)
def test_weight_files_are_refused_plainly(path: str, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        resolve(path)


@given(st.text(max_size=80))
def test_any_text_is_a_model_or_a_clear_error(name: str) -> None:
    try:
        message = resolve(name).id
    except SourceError as error:
        message = str(error)
    assert message
    assert "\n" not in message


WORDS = ("llama", "qwen", "3", "3.1", "7b", "8b", "instruct", "base", "gpt", "2", "-", "/", "v3", "deepseek")


@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_any_words_are_a_model_or_a_clear_error(words: list[str]) -> None:
    try:
        found = resolve(" ".join(words)).id
    except SourceError as error:
        found = str(error)
    assert "\n" not in found


@given(st.sampled_from([one.id for one in catalog()]), st.sampled_from(["upper", "lower", "swapcase"]))
def test_letter_case_does_not_matter(model_id: str, case: str) -> None:
    assert resolve(getattr(model_id, case)()).id == model_id


def test_a_name_that_was_asked_for_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve("meta-llama/Llama-3.1-8B")
    monkeypatch.setattr(Path, "open", lambda *_, **__: pytest.fail("a file is read again"))
    assert resolve("meta-llama/Llama-3.1-8B").config is first.config


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("lama3", "meta-llama/Meta-Llama-3-8B"),
        ("mistal-7b", "mistralai/Mistral-7B-v0.3"),
        ("qwen3-9b", "Qwen/Qwen3-8B"),
        ("gemma-4-30b", "google/gemma-4-31B"),
        ("deepsek-r1", "deepseek-ai/DeepSeek-R1"),
        ("flux", "black-forest-labs/FLUX.1-dev"),
        ("falcon 200b", "tiiuae/falcon-180B"),
    ],
)
def test_the_first_suggestion_is_what_a_misspelt_name_means(name: str, first: str) -> None:
    with pytest.raises(SourceError, match=f"did you mean {re.escape(first)}"):
        resolve(name)


def test_pipelines_are_near_that_begin_with_the_first_word_where_it_says_enough() -> None:
    assert near("flux.9-pro")
    assert all("/FLUX" in name for name in near("flux.9-pro"))
    assert not near("wan-9")  # three letters begin too much


@pytest.mark.parametrize("name", ["gpt-4o", "claude-3", "gemini-2", "openai/gpt-4"])
def test_a_model_without_published_weights_is_told_from_a_misspelt_one(name: str) -> None:
    with pytest.raises(SourceError, match="its weights are not published"):
        resolve(name, network=False)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Qwen3-8B-Instruct", "Qwen/Qwen3-8B"),
        ("phi-4-instruct", "microsoft/phi-4"),
        ("Qwen3-VL-8B", "Qwen/Qwen3-VL-8B-Instruct"),
        ("Qwen3-4B-Instruct", "Qwen/Qwen3-4B-Instruct-2507"),
    ],
)
def test_a_word_for_chat_that_a_name_lacks_is_no_reason_for_a_model_of_images(name: str, meant: str) -> None:
    found = resolve(name)
    assert found.id == meant
    assert f'"{name}" taken as {meant}' in (found.note or "")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nemotron-3-nano-30b", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
        ("nemotron-3-nano-30b-a3b", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
        ("nemotron-3-super", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"),
        ("nemotron-3-super-120b-a12b", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"),
        ("Nemotron 3 Ultra", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"),
        ("nemotron-nano-9b-v2", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"),
        ("nemotron", "nvidia/Nemotron-4-15B"),
    ],
)
def test_a_makers_name_before_a_model_may_be_left_out(name: str, meant: str) -> None:
    assert resolve(name).id == meant


@pytest.mark.parametrize(
    "name", ["hunyuan-4", "llama-5", "qwen-4", "gemma 8", "phi-5", "deepseek-8", "laguna-4", "internvl 5", "kimi-4"]
)
def test_a_version_that_no_model_has_is_not_read_out_of_formats_and_other_numbers(name: str) -> None:
    with pytest.raises(SourceError, match="unknown model"):
        resolve(name)


@pytest.mark.parametrize(
    "name", ["Hunyuan-7B-Instruct-GPTQ-Int4", "hunyuan 7b int 4", "Llama-3_3-Nemotron-Super-49B-v1_5", "phi-1_5"]
)
def test_bits_and_versions_that_a_model_has_are_found(name: str) -> None:
    assert resolve(name).id
