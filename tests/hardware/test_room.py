"""The room on a card that others use too: free memory, what must stay free, unequal cards, parts of a card."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import vramwise.hardware as hardware
from vramwise.errors import ScenarioError, UnknownNameError
from vramwise.estimation import estimate
from vramwise.hardware import find_gpu
from vramwise.hardware.room import room_of, rooms_of
from vramwise.scenario import Scenario
from vramwise.units import GIB, MIB

MODEL = "llama-3.1-8b"
SERVED = {"model": MODEL, "task": "serve", "gpu": "h100-sxm-80gb"}
TRAINED = {
    "model": MODEL, "task": "train", "gpu": "rtx-4090",
    "train": {"method": "qlora", "checkpointing": "full", "sequence_length": 1024},
}  # fmt: skip


def serving(engine="vllm", /, **more):
    top = {key: more.pop(key) for key in ("gpu", "gpu_free_bytes", "reserve_bytes") if key in more}
    return estimate({**SERVED, **top, "serve": {"engine": engine, "max_model_len": 8192, **more}})


def test_a_reserve_may_be_a_size_or_a_share():
    card = find_gpu("h100-sxm-80gb").gpu
    for asked, bytes_ in (("2GiB", 2 * GIB), ("10%", round(card.usable_bytes / 10)), (0, 0), ("0%", 0), (GIB, GIB)):
        room = room_of(Scenario.from_dict({**SERVED, "reserve_bytes": asked}), card)
        assert (room.reserve_bytes, room.usable_bytes) == (bytes_, card.usable_bytes - bytes_)


@pytest.mark.parametrize("wrong", ["100%", "-1%", "x%", "9" * 60 + "%", -1, True, "two", []])
def test_what_is_no_reserve_is_refused(wrong):
    with pytest.raises(ScenarioError, match="reserve_bytes"):
        Scenario.from_dict({**SERVED, "reserve_bytes": wrong})


def test_training_fits_in_what_others_leave():
    alone = estimate(TRAINED)
    assert alone.verdict.word == "fits"
    need = int(alone.needed.expected)
    held = estimate({**TRAINED, "gpu_free_bytes": need - GIB})
    assert (held.verdict.word, held.verdict.headroom_bytes) == ("does not fit", -GIB)
    assert "are held by others (gpu_free_bytes)" in held.verdict.reasons[0]
    both = estimate({**TRAINED, "gpu_free_bytes": need + GIB, "reserve_bytes": 2 * GIB})
    assert both.verdict.headroom_bytes == -GIB
    assert "2.00 GiB must stay free (reserve_bytes)" in both.verdict.reasons[0]


def test_vllm_takes_its_share_of_the_whole_card_and_refuses_to_start_where_it_is_not_free():
    card = find_gpu("h100-sxm-80gb").gpu.usable_bytes
    refused = serving(gpu_free_bytes=60 * GIB)
    assert refused.verdict.word == "does not fit"
    assert (
        "vLLM refuses to start: of 72.86 GiB (gpu_memory_utilization 0.92 of 79.20 GiB)" in refused.verdict.reasons[1]
    )
    assert refused.verdict.reasons[2] == "set gpu_memory_utilization to 0.74"
    lower = serving(gpu_free_bytes=60 * GIB, gpu_memory_utilization=0.74)
    assert lower.verdict.word == "fits"
    # the cache is that of the share of the whole card, whatever is free
    assert lower.quantities["kv_cache_bytes"] == serving(gpu_memory_utilization=0.74).quantities["kv_cache_bytes"]
    assert lower.capacity.usable_bytes == 60 * GIB < card
    # a cache of a given size does not help: the share is asked for all the same
    assert not serving(gpu_free_bytes=60 * GIB, kv_cache_memory_bytes=8 * GIB).verdict.fits


def test_vllm_before_the_check():
    later = serving(gpu_free_bytes=60 * GIB, engine_version="0.7.3")
    assert "and runs out of memory at 60.00 GiB" in later.verdict.reasons[1]
    # 0.8 charges to its share what others hold: a smaller cache, no refusal
    alone, beside = (serving(engine_version="0.8.5", gpu_free_bytes=free) for free in (80 * GIB, 60 * GIB))
    held = alone.capacity.usable_bytes - 60 * GIB
    caches = [result.quantities["kv_cache_bytes"].expected for result in (alone, beside)]
    assert beside.verdict.fits
    assert caches[0] - caches[1] == pytest.approx(held, abs=32 * MIB)


def test_vllm_leaves_what_must_stay_free():
    asked = serving(reserve_bytes="10%")
    assert asked.verdict.word == "does not fit"
    assert "of 7.92 GiB that must stay free 5.73 GiB are left" in asked.verdict.reasons[1]
    assert serving(reserve_bytes="10%", gpu_memory_utilization=0.85).verdict.fits


def test_what_must_stay_free_is_asked_of_each_card_of_llama_cpp():
    # the counters are sums over the cards: 2 x 40 GiB were held against the 71 GiB of one
    both = estimate(
        "llama-3.1-70b",
        task="serve",
        gpus=["a100-80gb"] * 2,
        reserve_bytes="10%",
        engine="llama.cpp",
        gguf_quant="Q8_0",
        n_ctx=8192,
    )
    assert max(rank.bytes for rank in both.ranks) < both.capacity.usable_bytes < both.quantities["nvidia_smi"].expected
    assert both.verdict.fits
    assert not any("the process fills" in reason for reason in both.verdict.reasons)


def test_longer_requests_need_no_less_of_what_vllm_may_use():
    needs = [
        serving(reserve_bytes="50%", max_model_len=n).quantities["total_needed"] for n in (4096, 131_072, 1_000_000)
    ]
    assert [need.low for need in needs] == sorted(need.low for need in needs)
    assert [need.expected for need in needs] == sorted(need.expected for need in needs)


def test_sglang_takes_its_share_of_what_is_free():
    alone, beside = serving("sglang"), serving("sglang", gpu_free_bytes=60 * GIB)
    assert beside.verdict.fits
    held = alone.capacity.usable_bytes - 60 * GIB
    share = alone.scenario["serve"]["mem_fraction_static"]
    assert beside.scenario["serve"]["mem_fraction_static"] == share  # which follows from the whole card
    caches = [result.quantities["kv_cache_bytes"].expected for result in (alone, beside)]
    assert caches[0] - caches[1] == pytest.approx(held * share, rel=0.01)
    kept = serving("sglang", reserve_bytes="20%")
    assert kept.verdict.word == "does not fit"
    assert kept.quantities["oom"].expected
    assert "that must stay free" in kept.verdict.reasons[0]


@pytest.mark.parametrize("engine", ["tgi", "tensorrt-llm"])
def test_other_shares_shrink_with_what_others_hold(engine):
    alone, beside = serving(engine), serving(engine, gpu_free_bytes=60 * GIB)
    assert beside.verdict.fits
    assert beside.quantities["kv_cache_bytes"].expected < alone.quantities["kv_cache_bytes"].expected - 15 * GIB


def test_unequal_cards_in_llama_cpp_each_hold_what_they_have_room_for():
    asked = {
        "model": "llama-3.1-70b",
        "task": "serve",
        "serve": {"engine": "llama.cpp", "gguf_quant": "q4_k_m", "n_ctx": 4096, "fit": False},
    }
    unequal = estimate({**asked, "gpus": ["4090", "rtx-a6000"]})
    ranks = [rank.bytes for rank in unequal.ranks]
    assert ranks[1] > 1.7 * ranks[0]  # 48 GB beside 24
    assert unequal.verdict.word == "fits"
    assert "each holds the part of the model that its own room allows" in " ".join(unequal.notes)
    assert unequal.scenario["gpus"] == ["4090", "rtx-a6000"]


def test_of_unequal_cards_the_smallest_decides_elsewhere():
    both = estimate(
        {"model": MODEL, "task": "serve", "gpus": "a100-sxm-40gb,h100", "serve": {"tensor_parallel_size": 2}}
    )
    assert both.capacity.gpu == "a100-sxm-40gb"
    assert "so the smallest decides, A100 SXM4 40GB" in " ".join(both.notes)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gpus": ["4090", "3090"], "gpu": "h100"}, "gpus: lists the GPUs of the machine"),
        ({"gpus": ["4090", "3090"], "num_gpus": 3}, 'gpus: "4090,3090" contradicts num_gpus 3'),
        ({"gpus": "2"}, "gpus: lists GPUs by name"),
        ({"gpus": ["99x4090", "3090"]}, "gpus: lists more than 64 GPUs"),
    ],
)
def test_contradicting_lists_of_cards_are_refused(more, said):
    with pytest.raises(ScenarioError, match=said.replace("(", r"\(")):
        Scenario.from_dict({"model": MODEL, "task": "load", **more})


def test_a_list_of_equal_cards_is_a_number_of_them():
    scenario = Scenario.from_dict({"model": MODEL, "task": "load", "gpus": ["2x4090", "4090"]})
    assert (scenario.gpu, scenario.gpus, scenario.num_gpus) == ("4090", None, 3)
    assert rooms_of(scenario) == ()


@pytest.mark.parametrize(
    ("name", "gpu", "mib"),
    [
        ("A100 1g.10gb", "a100-sxm-80gb-mig-1g.10gb", 9728),  # the plain slice, not the double one of 40 GB
        ("NVIDIA A100-SXM4-40GB MIG 1g.10gb", "a100-sxm-40gb-mig-1g.10gb", 9984),
        ("h100 3g.40gb", "h100-sxm-80gb-mig-3g.40gb", 40448),
        ("NVIDIA H100 NVL MIG 3g.47gb", "h100-nvl-94gb-mig-3g.47gb", 47488),
        ("nvidia.com/mig-1g.5gb", "a100-sxm-40gb-mig-1g.5gb", 4864),
        ("H200 MIG 3g.71gb+me", "h200-sxm-141gb-mig-3g.71gb", 71424),
        ("B200 MIG 1g.23gb", "b200-sxm-180gb-mig-1g.23gb", 20992),
        ("GH200 1g.24gb", "gh200-96gb-hbm3-mig-1g.24gb", 23552),
        ("RTX PRO 6000 Blackwell Server Edition MIG 2g.48gb", "rtx-pro-6000-blackwell-server-mig-2g.48gb", 47616),
        ("1c.3g.20gb", "a100-sxm-40gb-mig-3g.20gb", 20096),
        ("a30-pcie-24gb-mig-2g.12gb", "a30-pcie-24gb-mig-2g.12gb", 11968),
    ],
)
def test_mig_slices_by_the_names_that_tools_use(name, gpu, mib):
    found = find_gpu(name).gpu
    assert (found.id, found.usable.low, found.usable.high) == (gpu, mib * MIB, mib * MIB)
    assert find_gpu(found.id).gpu == found
    whole = find_gpu(gpu.partition("-mig-")[0]).gpu
    assert found.sm_count < whole.sm_count
    assert found.bandwidth_gb_s < whole.bandwidth_gb_s
    assert found.nvlink_gb_s is None


def test_every_mig_profile_is_found_on_every_card_that_has_it():
    with open(Path(hardware.__file__).with_name("mig.csv"), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(row["source"] for row in rows)
    for row in rows:
        for card in row["cards"].split(";"):
            found, whole = find_gpu(f"{card} {row['profile']}").gpu, find_gpu(card).gpu
            part = eval(row["fraction"], {})
            assert found.id == f"{card}-mig-{row['profile']}"
            assert 0.85 * part * whole.usable_bytes < found.usable_bytes <= 1.03 * part * whole.usable_bytes
            assert found.usable.low <= found.usable.expected <= found.usable.high


def test_an_unknown_slice_says_what_there_is():
    with pytest.raises(UnknownNameError, match=r"1g\.7gb.*did you mean 1g\.5gb"):
        find_gpu("1g.7gb")
    with pytest.raises(UnknownNameError, match=r"1g\.5gb is a MIG profile of a100-pcie-40gb, a100-sxm-40gb"):
        find_gpu("4090 1g.5gb")


def test_a_share_of_a_card():
    half, whole = find_gpu("50% of h100-sxm-80gb").gpu, find_gpu("h100-sxm-80gb").gpu
    assert half.usable_bytes == whole.usable_bytes // 2
    assert half.sm_count == whole.sm_count
    assert find_gpu("a100-sxm-80gb 25%").gpu.id == "25% of a100-sxm-80gb"
    result = estimate({**SERVED, "gpu": "50% of h100-sxm-80gb"})
    assert result.capacity.usable_bytes == half.usable_bytes
    assert result.quantities["kv_cache_bytes"].expected < 30 * GIB
