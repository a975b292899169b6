"""Prefill and decode on servers of their own: what each does by the roofline, and that both fit when asked alone."""

from __future__ import annotations

import json
import math
import shlex

import pytest

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.planner.apart import Traffic, apart
from vramwise.planner.inventory import Pool
from vramwise.scenario import Scenario

LOAD = Traffic(20.0, 2048, 256)
FLAGS = ["--request-rate", "20", "--input-tokens", "2048", "--output-tokens", "256"]
ASKED = ["plan", "llama-3.1-8b", "--goal", "run", "--engine", "vllm"]


def scenario(model="llama-3.1-8b", gpu="h100-sxm-80gb", **serve):
    return Scenario.from_dict({"model": model, "task": "serve", "gpu": gpu, "serve": {"engine": "vllm", **serve}})


@pytest.fixture(scope="module")
def found():
    return apart(scenario(), LOAD)


def test_servers_carry_the_load_at_the_low_end_of_their_rates_and_none_is_spare(found):
    for servers, tokens in ((found.prefill, 2048), (found.decode, 256)):
        needed = LOAD.requests_per_second * tokens
        assert servers.replicas == math.ceil(needed / servers.tokens_per_s[0])
        assert servers.tokens_per_s[0] < servers.tokens_per_s[1]


def test_each_server_is_a_full_estimate_that_holds_the_lengths_it_sees(found):
    for servers, length in ((found.prefill, 2049), (found.decode, 2304)):
        again = estimate(servers.scenario)
        assert again.needed == servers.result.needed
        assert again.verdict.fits
        assert again.scenario["serve"]["max_model_len"] == length
        assert servers.requests_at_once <= again.quantities["max_concurrency"].expected


def test_the_rates_are_the_rooflines(found):
    # 2 N a token without look-ups, and 4 · 32 layers · 4,096 · half of the prompt, over 989.4 TFLOP/s
    flops = 2 * (8_030_261_248 - 128_256 * 4096) + 4 * 32 * 4096 * 1024
    assert found.prefill.tokens_per_s[0] == pytest.approx(0.35496 * 989.4e12 / flops, rel=1e-3)
    assert found.prefill.tokens_per_s[1] < 989.4e12 / flops
    # weights without the table, and each request's keys and values with half of the reply written, over 3,352 GB/s
    held, block = found.decode.requests_at_once, 32 * 8 * 128 * 2 * 2
    read = 2 * (8_030_261_248 - 128_256 * 4096) + held * block * (2048 + 128)
    assert found.decode.tokens_per_s[0] == pytest.approx(0.39855 * held * 3352e9 / read, rel=0.01)


def test_a_prompts_cache_is_what_moves(found):
    # the pool's rest that is no whole block is dealt out with the others
    assert found.transfer.bytes == pytest.approx(32 * 8 * 128 * 2 * 2 * 2048, rel=1e-4)
    assert found.transfer.link == "within a node"  # 4 cards of 8
    far = apart(scenario(), Traffic(200.0, 2048, 256))
    assert far.transfer.link == "network"
    # 3,200 Gbit/s of a node, 80 % of them, an eighth for one card
    assert far.transfer.seconds == pytest.approx(found.transfer.bytes / (3200e9 / 8 * 0.8 / 8), rel=1e-6)
    least, most = far.first_token_s
    slow, fast = far.prefill.tokens_per_s
    assert (slow, fast) == found.prefill.tokens_per_s
    # what moves comes after the prompt was read, however fast that was
    assert least == pytest.approx(2048 / fast + far.transfer.seconds)
    assert most == pytest.approx(2048 / slow + far.transfer.seconds)
    carried = min(far.prefill.num_gpus, far.decode.num_gpus) * 3200e9 / 8 * 0.8 / 8
    assert far.transfer.network_share == pytest.approx(200 * far.transfer.bytes / carried, rel=1e-6)


def test_sure_servers_come_before_tight_ones_and_prices_decide():
    assert apart(scenario("llama-3.1-70b"), LOAD).prefill.is_sure
    pools = [Pool("h100-sxm-80gb", 64, 8, 4.0), Pool("h200-sxm-141gb", 64, 8, 1.0)]
    cheap = apart(scenario(gpu=None), LOAD, pools)
    assert {cheap.prefill.scenario.gpu, cheap.decode.scenario.gpu} == {"h200-sxm-141gb"}
    assert cheap.decode.cost_per_hour == cheap.decode.num_gpus * 1.0


def test_where_there_are_fewer_cards_than_it_takes_it_says_so():
    few = apart(scenario(gpu=None), Traffic(1000.0, 2048, 256), [Pool("h100-sxm-80gb", 4)])
    assert few.prefill is None
    assert "more than the 4 there are" in few.binding
    none = apart(scenario("llama-3.1-405b"), LOAD)
    assert none.decode is None
    assert "does not fit" in none.binding


@pytest.mark.parametrize(
    ("serve", "words"),
    [({"engine": "llama.cpp"}, "pool of cache tokens"), ({"max_model_len": 2100}, "shorter than prompt and reply"),
     ({"pipeline_parallel_size": 2}, "ranks of tensor parallelism")],
)  # fmt: skip
def test_what_cannot_be_planned_is_one_line(serve, words):
    with pytest.raises(UsageError, match=words):
        apart(scenario(**serve).replace(num_gpus=2), LOAD)


def test_a_model_that_writes_nothing_has_no_decode_servers_and_no_tokens_a_second(capsys):
    with pytest.raises(UsageError, match="nothing to decode"):
        apart(scenario("bert-base-uncased"), LOAD)
    assert main(["plan", "bert-base-uncased", "--goal", "run", "--gpu", "4060", "--json"]) == 0
    assert "request_tokens_per_second" not in json.loads(capsys.readouterr().out)["options"][0]


def test_the_command_and_its_json(capsys):
    assert main([*ASKED, "--gpu", "h100", *FLAGS, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["apart"]["traffic"]["requests_per_second"] == 20
    words = shlex.split(answer["apart"]["decode"]["command"])
    assert main([*words[1:], "--json"]) == 0
    capsys.readouterr()
    assert main([*ASKED, "--gpu", "h100", *FLAGS]) == 0
    assert "of cache a prompt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [(FLAGS[:2], "go together"), ([*FLAGS, "--requests", "5"], "two loads"), ([*FLAGS, "--option", "2"], "one plan"),
     ([*FLAGS[:4], "--output-tokens", "1.5"], "whole number"), ([*FLAGS[:4], "--output-tokens", "0"], "above 0"),
     (["--request-rate", "x", *FLAGS[2:]], "expected a number"),
     ([*FLAGS, "--option", "1", "--export", "vllm"], "--export aisimulate"),
     ([*FLAGS, "--save", "x.json"], "--save: has no effect"), ([*FLAGS, "--rank", "front"], "--rank: has no effect"),
     ([*FLAGS[:2], "--input-tokens", "200k", "--output-tokens", "1"], "has positions for 131,072")],
)  # fmt: skip
def test_a_load_that_cannot_be_understood_is_one_line(flags, words, capsys):
    assert main([*ASKED, "--gpu", "h100", *flags]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
