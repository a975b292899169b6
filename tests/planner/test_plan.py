"""`plan`: every option fits when it is asked for by itself, keeps to the wishes, and stands in the order wished for."""

from __future__ import annotations

import json
import shlex

import pytest

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.cli.screens.plan import plan_screen
from vramwise.errors import UsageError
from vramwise.estimation import described_model
from vramwise.hardware import find_gpu
from vramwise.planner.changes import Asked, changed
from vramwise.planner.combinations import combinations
from vramwise.planner.inference_changes import serving_changes
from vramwise.planner.inventory import Pool, read_inventory
from vramwise.planner.layouts import layouts
from vramwise.planner.option import Wishes
from vramwise.planner.plan import Plan, plan
from vramwise.planner.searched_layouts import searched
from vramwise.scenario import Scenario
from vramwise.training.answer import fullest_rank
from vramwise.training.job import job_of
from vramwise.training.many import telling_ranks
from vramwise.training_parts import steps_over_links
from vramwise.units import format_bytes

MODEL = "Qwen/Qwen3-4B"


def planned(wishes: Wishes, pools: tuple[Pool, ...] = (), gpu: str | None = "rtx-4090", **keys: object) -> Plan:
    top = {key: keys.pop(key) for key in ("num_gpus",) if key in keys}
    task = {"run": "serve"}.get(wishes.goal, "train")
    scenario = Scenario.from_dict({"model": MODEL, "task": task, "gpu": gpu, **top, task: keys})
    return plan(scenario, wishes, pools)


@pytest.fixture(scope="module")
def full() -> Plan:
    return planned(Wishes("fine-tune"), sequence_length=2048)


def test_every_option_is_a_full_estimate_of_its_own(full):
    assert full.options
    for option in full.options:
        again = estimate(option.scenario)
        assert again.needed == option.result.needed
        assert again.verdict.fits
        assert option.probability == again.verdict.probability


def test_the_command_of_an_option_asks_for_it(full, capsys):
    for option in full.options[:3]:
        words = shlex.split(option.command)
        assert words[:2] == ["vramwise", "estimate"]
        assert main([*words[1:], "--json"]) == 0
        capsys.readouterr()


def test_combinations_are_found_where_no_single_change_is_enough(full):
    assert not full.asked.verdict.fits
    assert any(len(option.change) > 1 for option in full.options)
    assert "optimizer states" in full.binding


def test_what_is_kept_stays():
    kept = planned(Wishes("fine-tune", keep=frozenset({"method", "num_gpus"}), offloads=False), sequence_length=2048)
    for option in kept.options:
        assert option.scenario.train.method == "full"
        assert option.scenario.num_gpus == 1
        assert option.scenario.train.offload_optimizer == option.scenario.train.offload_params == "none"


def test_no_recomputation_where_none_is_wanted():
    found = planned(Wishes("fine-tune", most_recompute="none"), sequence_length=1024)
    assert found.options
    assert {option.scenario.train.checkpointing for option in found.options} == {"none"}


def test_training_from_scratch_is_never_turned_into_adapters():
    found = planned(Wishes("train"), num_gpus=2, sequence_length=1024)
    assert all(option.scenario.train.method == "full" for option in found.options)


def test_a_chance_of_running_out_bounds_the_options():
    found = planned(Wishes("fine-tune", risk=0.02), sequence_length=2048)
    assert found.options
    assert all(option.probability >= 0.98 for option in found.options)


def test_a_smaller_micro_batch_is_accumulated_to_the_same_batch():
    found = planned(Wishes("fine-tune", keep=frozenset({"sequence_length"})), micro_batch_size=8, method="qlora")
    alone = [
        option.scenario.train for option in found.options
        if "micro_batch_size" in option.change and option.scenario.num_gpus == 1
    ]  # fmt: skip
    assert alone
    assert all(train.micro_batch_size * train.gradient_accumulation_steps >= 8 for train in alone)


@pytest.mark.parametrize("rank", ["time", "memory", "money"])
def test_options_stand_in_the_order_that_is_wished_for(rank):
    found = planned(Wishes("fine-tune", rank=rank, price_per_hour=2.0), method="lora", sequence_length=1024)
    sure = [option for option in found.options if option.result.verdict.word == "fits"]
    keys = {
        "time": lambda option: -option.tokens_per_second,
        "memory": lambda option: option.result.needed.expected,
        "money": lambda option: option.cost_per_hour / option.tokens_per_second,
    }
    assert len(sure) > 1
    assert [*map(keys[rank], sure)] == sorted(map(keys[rank], sure))


def test_more_than_what_is_enough_is_not_offered():
    scenario = Scenario.from_dict({"model": MODEL, "task": "train", "gpu": "rtx-4090"})
    sure = []
    for one in combinations(scenario, lambda asked: estimate(asked, replays=False), lambda change: True):
        values = set(map(repr, one.values.items()))
        assert not any(enough < values for enough in sure)
        if one.is_sure:
            sure.append(values)


def test_an_inventory_says_which_cards_and_what_they_cost(tmp_path):
    file = tmp_path / "cards.toml"
    file.write_text(
        '[[gpu]]\nid = "a100-sxm-80gb"\ncount = 16\nprice_per_hour = 1.5\nhost_ram = "64 GiB"\n'
        '[[gpu]]\nid = "rtx-4090"\ncount = 4\nper_node = 4\nprice_per_hour = 0.4\ninterconnect = 25\n'
    )
    pools = read_inventory(str(file))
    assert pools[1] == Pool("rtx-4090", 4, 4, 0.4, None, 25)
    found = planned(Wishes("train", rank="money"), tuple(pools), gpu=None, sequence_length=2048)
    assert found.options
    assert {option.scenario.gpu for option in found.options} <= {"a100-sxm-80gb", "rtx-4090"}
    assert all(option.cost_per_hour for option in found.options)
    of_4090 = [option for option in found.options if option.scenario.gpu == "rtx-4090"]
    assert all(option.scenario.num_gpus <= 4 for option in of_4090)


def test_no_option_of_a_front_is_beaten_in_memory_time_and_money():
    pools = (Pool("a100-sxm-80gb", 2, 8, 1.5), Pool("rtx-4090", 8, 8, 1.0))
    keep = frozenset({"method", "sequence_length", "optimizer"})
    found = planned(Wishes("train", rank="front", keep=keep, offloads=False), pools, gpu=None, sequence_length=2048)
    aims = [
        (option.result.needed.expected, -option.tokens_per_second, option.cost_per_hour / option.tokens_per_second)
        for option in found.options
    ]
    assert len(aims) > 2
    assert len({option.scenario.gpu for option in found.options}) == 2
    for own in aims:
        assert not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in aims)


def test_money_does_not_compare_cards_of_which_some_have_no_price():
    pools = (Pool("a100-sxm-80gb", 2, 8, 1.5), Pool("rtx-4090", 2))
    with pytest.raises(UsageError, match="rtx-4090 has no price_per_hour"):
        planned(Wishes("train", rank="money"), pools, gpu=None)


def test_host_memory_bounds_offloading():
    pool = Pool("a100-sxm-80gb", 2, 8, None, 2**30)
    found = planned(Wishes("train"), (pool,), gpu=None, offload_optimizer="cpu", zero_stage=2, framework="deepspeed")
    assert not any(option.words.startswith("2 ×") for option in found.options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu = 3\n", "expected entries [[gpu]]"),
        ('[[gpu]]\nid = "h1000"\ncount = 1\n', "gpu 1: unknown GPU"),
        ('[[gpu]]\nid = "h100"\ncount = 0\n', "count: expected a whole number"),
        ('[[gpu]]\nid = "h100"\nprice_per_hour = 0\n', "price_per_hour is 0"),
        ('[[gpu]]\nid = "h100"\nprice = 3\n', "unknown key 'price'"),
        ('[[gpu]]\nid = "h100"\ncount = 1e30\n', "count: expected a number"),
        ('[[gpu]]\nid = "h100"\nhost_ram = "much"\n', "gpu 1"),
    ],
)
def test_a_bad_inventory_is_one_clear_line(tmp_path, text, said):
    file = tmp_path / "cards.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as problem:
        read_inventory(str(file))
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_65b_model_on_four_v100_is_refused_with_every_reason_and_what_could():
    scenario = Scenario.from_dict({"model": "llama-65b", "task": "train", "gpu": "v100-sxm2-32gb", "num_gpus": 4})
    found = plan(scenario, Wishes("train", keep=frozenset({"num_gpus"}), offloads=False))
    assert not found.options
    reasons = "\n".join(found.reasons)
    assert "16-bit weights alone are 121.60 GiB, 30.40 GiB on each of 4 cards: 1.34 GiB are left" in reasons
    assert "flash-attention" in reasons
    assert found.refusal == "no: not in the memory of 4 × Tesla V100 SXM2 32GB"
    assert found.instead.scenario.train.method == "qlora"
    assert found.instead.result.verdict.fits
    assert "bf16" in reasons
    assert "; without --" in found.binding
    adapters = plan(scenario, Wishes("fine-tune", keep=frozenset({"num_gpus"}), offloads=False))
    assert adapters.options[0].scenario.train.method == "qlora"


def test_what_lies_on_hosts_is_no_answer_for_the_cards_and_says_how_much_that_is():
    scenario = {"model": "Qwen/Qwen3-8B", "task": "train", "gpu": "rtx-4090"}
    kept = frozenset({"num_gpus"})
    found = plan(scenario, Wishes("train", keep=kept))
    assert found.options
    assert all("host_memory" in option.result.quantities for option in found.options)
    assert found.refusal == "no: not in the memory of 1 × GeForce RTX 4090"
    host = format_bytes(int(found.options[0].result.quantities["host_memory"].expected))
    shown = " ".join(" ".join(map(str, plan_screen(found))).split())
    assert f"{host} of host memory on a node)" in shown
    assert shown.index("because") < shown.index("next:")
    small = {"model": "gpt2", "task": "train", "gpu": "h100"}
    assert plan(small, Wishes("train", keep=kept)).refusal == ""


def test_where_nothing_fits_the_wish_that_stands_in_the_way_is_named():
    scenario = Scenario.from_dict({"model": "Qwen/Qwen3-8B", "task": "train", "gpu": "rtx-4090"})
    kept = frozenset({"method", "num_gpus"})
    found = plan(scenario, Wishes("fine-tune", keep=kept, offloads=False, most_recompute="none"))
    assert not found.options
    assert "misses by" in found.binding
    assert "; without --keep method it fits: " in found.binding


def test_serving_says_how_fast_one_request_is_of_what_bandwidth_allows():
    for named in ("rtx-4090", None):
        pools = () if named else (Pool("rtx-4090", 1),)
        best = planned(Wishes("run"), pools, gpu=named, engine="vllm", max_model_len=4096).options[0]
        speed = best.request_speed
        weights = best.result.quantities["weights"].expected
        assert speed.ceiling.bytes_per_token == pytest.approx(
            weights + 4096 * 144 * 1024, rel=0.02
        )  # 36 layers, 8 × 128
        assert speed.ceiling.tokens_per_second == pytest.approx(1008e9 / speed.ceiling.bytes_per_token, rel=0.01)
        assert 0 < speed.usual[0] < speed.usual[1] < speed.ceiling.tokens_per_second
        assert best.to_dict()["request_tokens_per_second"]["ceiling"] == speed.ceiling.tokens_per_second


def test_a_training_has_no_speed_of_a_request(full):
    assert full.options[0].request_speed is None


def test_layouts_of_a_large_model_divide_it():
    train = {"framework": "megatron", "sequence_length": 4096}
    scenario = Scenario.from_dict(
        {"model": "meta-llama/Llama-3.1-70B", "task": "train", "gpu": "h100", "num_gpus": 64, "train": train}
    )
    found = plan(scenario, Wishes("train", rank="time"))
    assert found.options
    for option in found.options:
        made = option.scenario.train
        together = made.tensor_parallel_size * made.pipeline_parallel_size
        assert option.scenario.num_gpus % together == 0
        assert 8 % made.tensor_parallel_size == 0
    assert any(option.scenario.train.tensor_parallel_size > 1 for option in found.options)


@pytest.mark.parametrize(
    ("layers", "gpus", "stages"),
    [(105, 280, 35), (105, 2520, 35), (128, 512, 64), (128, 3072, 64), (96, 48, 6)],
)
def test_stages_of_equal_layers_stand_beside_whole_nodes_of_tensor_ranks(layers, gpus, stages):
    config = {"model_type": "gpt2", "n_layer": layers, "n_head": 128, "n_embd": 1280, "n_positions": 2048,
              "vocab_size": 51200}  # fmt: skip
    scenario = Scenario.from_dict({"model": config, "task": "train", "gpu": "a100", "num_gpus": gpus,
                                   "train": {"framework": "megatron"}})  # fmt: skip
    found = list(layouts(scenario, described_model(config)[1], gpus))
    of = [one.get("tensor_parallel_size") for one in found if one.get("pipeline_parallel_size") == stages]
    assert of == [8]
    uneven = [n for one in found if layers % (n := int(str(one.get("pipeline_parallel_size", 1))))]
    assert all(not n & (n - 1) for n in uneven)


def test_slower_links_expose_the_gathers_of_zero_3():
    train = {"zero_stage": 3, "sequence_length": 2048}
    scenario = Scenario.from_dict({"model": MODEL, "task": "train", "gpu": "h100", "num_gpus": 8, "train": train})
    nvlink, pcie, ethernet = steps_over_links(scenario)
    assert nvlink.step_time_s == pytest.approx(estimate(scenario).quantities["step_time_s"].expected, rel=1e-5)
    assert [one.link.partition(" ")[0] for one in (nvlink, pcie, ethernet)] == ["NVLink", "PCIe", "Ethernet"]
    assert nvlink.exposed_s < pcie.exposed_s < ethernet.exposed_s
    # what is longer than on NVLink is what a card waits for, and nothing else
    assert pcie.step_time_s - nvlink.step_time_s == pytest.approx(pcie.exposed_s - nvlink.exposed_s)
    assert pcie.slow_down == pcie.step_time_s / nvlink.step_time_s
    # two gathers of the weights and a reduction of the gradients, of 2 bytes each, at half of PCIe 5.0's 63 GB/s
    moved = 3 * 2 * 4.02e9 * 7 / 8 / 31.5e9
    assert pcie.exposed_s < moved < pcie.exposed_s + nvlink.step_time_s


def test_across_nodes_the_network_decides_and_one_card_has_no_links():
    scenario = Scenario.from_dict({"model": MODEL, "task": "train", "gpu": "a100-80gb", "num_gpus": 16})
    names = [one.link for one in steps_over_links(scenario)]
    assert sorted(names)[0] == "NVLink, 1,600 Gbit/s between nodes"
    assert len(names) == 3
    assert steps_over_links(scenario.replace(num_gpus=1)) == ()


def test_machines_that_clouds_rent_are_an_inventory_by_their_names(tmp_path):
    file = tmp_path / "cloud.csv"
    file.write_text("id,count,price_per_hour\np5.48xlarge,2,98\nl4,3,0.8\n")
    rented, own = read_inventory(str(file))
    assert (rented.gpu, rented.count, rented.per_node, rented.price_per_hour) == ("h100-sxm-80gb", 16, 8, 12.25)
    assert (own.gpu, own.count, own.price_per_hour) == ("l4", 3, 0.8)
    file.write_text("name,gpus\np5.48xlarge,2\n")
    with pytest.raises(UsageError, match=r"cloud\.csv: gpu 1: expected columns id and count \(and per_node"):
        read_inventory(str(file))


def test_serving_looks_at_every_card_of_an_inventory():
    host = 8 * 2**30
    pools = (Pool("rtx-4060", 1, 8, 0.2, host), Pool("rtx-4090", 1, 8, 0.5, host), Pool("h100-sxm-80gb", 1, 8, 2.5))
    cheap = planned(Wishes("run", rank="money"), pools, gpu=None, engine="vllm", max_model_len=8192)
    fast = planned(Wishes("run", rank="time"), pools, gpu=None, engine="vllm", max_model_len=8192)
    prices = [option.cost_per_hour for option in cheap.options if option.result.verdict.word == "fits"]
    assert prices == sorted(prices)
    assert prices[0] == 0.2
    assert len({option.scenario.gpu for option in cheap.options + fast.options}) == 3
    assert fast.options[0].scenario.gpu == "h100-sxm-80gb"
    assert fast.options[0].words.startswith("1 × H100 SXM5 80GB · ")
    assert all(option.scenario.num_gpus == 1 for option in cheap.options)


def test_a_host_bounds_what_llama_cpp_leaves_there():
    def options(host_gib: int) -> int:
        pool = Pool("rtx-4060", 1, 8, None, host_gib * 2**30)
        keys = {"engine": "llama.cpp", "gguf_quant": "Q4_K_M", "n_ctx": 8192, "fit": False}
        scenario = Scenario.from_dict({"model": "Qwen/Qwen3-30B-A3B", "task": "serve", "serve": keys})
        kept = frozenset({"gguf_quant"})
        return len(plan(scenario, Wishes("run", keep=kept), [pool]).options)

    assert options(8) == 0 < options(32)  # 17 GiB of which 7 lie on the card


def test_unequal_cards_get_a_split_that_is_searched_for():
    keys = {"engine": "llama.cpp", "gguf_quant": "Q8_0", "n_ctx": 4096, "fit": False, "engine_version": "b10700"}
    scenario = Scenario.from_dict(
        {"model": "Qwen/Qwen3-30B-A3B", "task": "serve", "gpus": ["4090", "4060"], "serve": keys}
    )
    found = plan(scenario, Wishes("run"))
    assert not found.asked.verdict.fits
    assert ["tensor_split"] in [list(option.change) for option in found.options]
    assert all(option.scenario.num_gpus == 2 for option in found.options)


def test_llama_cpp_takes_smaller_batches_and_a_cache_on_the_host():
    keys = {"engine": "llama.cpp", "gguf_quant": "Q4_K_M", "n_ctx": 131_072, "fit": False}
    scenario = Scenario.from_dict(
        {"model": "meta-llama/Llama-3.1-8B", "task": "serve", "gpu": "rtx-4060", "serve": keys}
    )
    offered = {change.words: change for change in serving_changes(Asked(scenario, estimate(scenario)))}
    assert {"n_ubatch 128", "no_kv_offload"} < set(offered)
    found = plan(scenario, Wishes("run", keep=frozenset({"n_ctx", "gguf_quant", "n_gpu_layers", "num_gpus"})))
    assert any("no_kv_offload" in option.change for option in found.options)


def test_replicas_of_a_server_share_a_load_and_what_holds_more_requests_is_looked_for():
    wishes = Wishes("run", requests=100, price_per_hour=0.5)
    found = planned(wishes, engine="vllm", max_model_len=8192)
    first = found.options[0]
    assert first.change
    assert found.asked.verdict.fits  # as asked, which takes more cards
    for option in found.options:
        held = int(option.result.quantities["max_concurrency"].expected)
        assert option.load.replicas == -(-100 // held)
        assert option.load.num_gpus == option.load.replicas * option.scenario.num_gpus
        assert option.to_dict()["load"]["cost_per_hour"] == 0.5 * option.load.num_gpus
        assert first.load.num_gpus <= option.load.num_gpus
    few = (Pool("rtx-4090", first.load.num_gpus - 1),)
    fewer = planned(wishes, few, gpu=None, engine="vllm", max_model_len=8192).options
    assert not any(option.result.verdict.word == "fits" for option in fewer)  # those were the fewest that are sure


@pytest.mark.parametrize(
    ("words", "said"), [(["run", "2.5"], "whole number"), (["train", "8"], "goes with --goal run")]
)
def test_requests_that_cannot_be_are_one_clear_line(words, said, capsys):
    goal, requests = words
    assert main(["plan", MODEL, "--gpu", "4090", "--goal", goal, "--requests", requests]) == 2
    problem = capsys.readouterr().err
    assert said in problem
    assert problem.count("\n") == 1


@pytest.mark.parametrize(
    ("framework", "more"),
    [("megatron", {}), ("torchtitan", {"gradient_accumulation_steps": 4}), ("deepspeed", {}), ("transformers", {})],
)
def test_layouts_on_columns_need_what_estimates_of_their_own_say(framework, more):
    """Needs to the byte, the verdict's word and the speed, of a candidate in every few; nothing that fits is lost."""
    top = {"model": "Qwen/Qwen3-4B", "task": "train", "gpu": "a100-sxm-40gb", "num_gpus": 8}
    scenario = Scenario.from_dict({**top, "train": {"framework": framework, "sequence_length": 4096, **more}})
    model = described_model(scenario.model)[1]
    seen = []
    found = searched(scenario, model, Wishes("train"), seen.append).candidates
    assert len(seen) > 100
    assert found
    for one in found[:: max(1, len(found) // 6)]:
        alone = estimate(changed(scenario, one.values), replays=False)
        assert one.needed_bytes == int(alone.needed.expected)
        assert one.word == alone.verdict.word
        assert one.tokens_per_second == alone.quantities["tokens_per_second"].expected
    ranks = [(one.word != "fits", -one.tokens_per_second) for one in found]
    assert ranks == sorted(ranks)


def test_of_stages_with_the_same_layers_the_fullest_tells_for_all():
    train = {
        "framework": "megatron",
        "pipeline_parallel_size": 8,
        "num_microbatches": 16,
        "distributed_optimizer": True,
    }
    scenario = Scenario.from_dict(
        {"model": "Qwen/Qwen3-4B", "task": "train", "gpu": "a100-sxm-40gb", "num_gpus": 16, "train": train}
    )
    job = job_of(scenario, described_model(scenario.model)[1], find_gpu("a100-sxm-40gb").gpu)
    told = telling_ranks(job)
    assert len(told) < len(job.ranks) == 8
    assert {job.ranks[0], job.ranks[-1]} <= set(told)
    most = fullest_rank(job, None)
    assert most.rank in told
    assert fullest_rank(job, None, told).moments == most.moments


SMALL = {"model": "Qwen/Qwen3-4B", "task": "train", "gpu": "a100-sxm-40gb", "num_gpus": 8}
KEPT = Wishes("train", keep=frozenset({"num_gpus"}))


def test_a_saved_search_goes_on_where_it_was_and_answers_the_same(tmp_path):
    table = {**SMALL, "train": {"framework": "megatron"}}
    file = tmp_path / "search.json"
    whole, counted = plan(table, KEPT), []

    def stop(number: int) -> None:
        counted.append(number)
        if len(counted) == 600:
            raise KeyboardInterrupt

    stopped = plan(table, KEPT, seen=stop, save=str(file))
    assert stopped.interrupted
    assert any(option.scenario.train.distributed_optimizer for option in stopped.options)  # of layouts: the best so far
    kept = json.loads(file.read_text())["layouts"]
    assert kept
    resumed = plan(table, KEPT, save=str(file))
    assert resumed.searched < whole.searched
    assert len(json.loads(file.read_text())["layouts"]) > len(kept)
    for one, other in zip(resumed.options, whole.options, strict=True):
        assert one.scenario == other.scenario
    again = plan(table, KEPT, save=str(file))
    assert again.searched < resumed.searched


def test_a_saved_search_of_something_else_is_one_clear_line(tmp_path):
    file = tmp_path / "search.json"
    plan(SMALL, KEPT, save=str(file))
    with pytest.raises(UsageError, match="another question"):
        plan({**SMALL, "train": {"sequence_length": 512}}, KEPT, save=str(file))
    table = json.loads(file.read_text())
    for broken in ("", "[]", "{}", json.dumps({**table, "layouts": {"x": [{"values": {}}]}}), "[" * 100_000):
        file.write_text(broken)
        with pytest.raises(UsageError, match="is no saved search"):
            plan(SMALL, KEPT, save=str(file))
    file.write_text(json.dumps({**table, "vramwise": "0"}))
    with pytest.raises(UsageError, match="another version"):
        plan(SMALL, KEPT, save=str(file))


def test_nothing_is_on_the_host_where_nothing_may_be():
    """llama.cpp would put most of 405 billion parameters there, and says so; a smaller model is whole on the card."""
    large = Scenario.from_dict({"model": "llama-3.1-405b", "task": "serve", "gpu": "rtx-3060-12gb"})
    assert any("llama.cpp" in option.words for option in plan(large, Wishes("run")).options)
    assert not any("llama.cpp" in option.words for option in plan(large, Wishes("run", offloads=False)).options)
    small = large.replace(model="llama-3.1-8b")
    assert any("llama.cpp" in option.words for option in plan(small, Wishes("run", offloads=False)).options)


def test_what_is_nearly_sure_on_the_card_that_is_there_comes_before_more_cards_and_host_memory() -> None:
    """32B on one card of 24 GB: 4-bit adapters, before 622 GiB of host memory and 32 more cards."""
    scenario = Scenario.from_dict({"model": "Qwen/Qwen3-32B", "task": "train", "gpu": "rtx-4090"})
    first, *others = plan(scenario, Wishes("fine-tune")).options
    assert first.scenario.train.method == "qlora"
    assert first.scenario.num_gpus == 1
    assert any(option.scenario.num_gpus > 1 or "offload_params" in option.change for option in others)


def held_here(option) -> bool:
    """Whether it stands on the cards that were asked for and nothing else."""
    return not any(option.change.get(key) for key in ("num_gpus", "offload_optimizer", "offload_params"))


@pytest.mark.parametrize(
    ("model", "gpu", "num_gpus", "keeps"),
    [
        ("Qwen/Qwen3-8B", "rtx-4060", None, {}),  # 4 bits, and a sequence of half the length
        ("openai/gpt-oss-120b", "a100-sxm-80gb", 4, {"sequence_length"}),  # 4 bits of experts too, over shared weights
    ],
)
def test_what_the_door_fine_tunes_a_plan_finds(model, gpu, num_gpus, keeps):
    """What hangs on host memory that nobody stated ended the search before adapters that the cards hold."""
    many = {} if num_gpus is None else {"num_gpus": num_gpus}
    scenario = Scenario.from_dict({"model": model, "task": "train", "gpu": gpu, **many})
    first = plan(scenario, Wishes("fine-tune", keep=frozenset(keeps))).options[0]
    assert first.scenario.train.method == "qlora"
    assert first.result.verdict.fits
    assert held_here(first)


def test_a_server_over_more_cards_stands_in_4_bits_in_8_and_as_it_is():
    """A part of the weights on the host, which nobody stated, ended the search before."""
    scenario = Scenario.from_dict({"model": "Qwen/Qwen3-235B-A22B", "task": "serve", "gpu": "h100-sxm-80gb"})
    found = plan(scenario, Wishes("run")).options
    over = {option.scenario.num_gpus: option.change.get("quantization") for option in found}
    assert {2: "awq", 4: "fp8", 8: None}.items() <= over.items()


def test_no_option_only_shortens_requests_of_one_before_it():
    scenario = Scenario.from_dict({"model": "Qwen/Qwen3-8B", "task": "serve", "gpu": "rtx-4060"})
    lengths = [option.change.get("n_ctx") for option in plan(scenario, Wishes("run")).options]
    assert [one for one in lengths if one is not None] == [8192]


def test_no_option_changes_more_than_one_before_it_and_gains_nothing():
    scenario = Scenario.from_dict({"model": "openai/gpt-oss-120b", "task": "train", "gpu": "a100", "num_gpus": 4})
    found = plan(scenario, Wishes("fine-tune")).options
    for place, option in enumerate(found):
        for than in found[:place]:
            gains = (
                option.result.needed.expected < than.result.needed.expected
                or option.probability > than.probability
                or option.tokens_per_second > than.tokens_per_second
            )
            assert gains or not than.change.items() < option.change.items()
