"""Out-of-memory messages of every program and version, the cause, and the changes."""

from __future__ import annotations

import cProfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise import engines as records
from vramwise.cli.screens.oom import where_of
from vramwise.errors import UsageError
from vramwise.measure import diagnose_text
from vramwise.measure.messages import MOST_MESSAGES, compilers, drivers, engines, failures_in, host, messages_in, torch
from vramwise.units import parse_bytes

ADVICE_OLD = " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
ADVICE = " If reserved but unallocated memory is large try setting {} to avoid fragmentation."

# torch version -> message, then what it says: tried, total, free, allocated, reserved, process
TORCH = {
    "1.1": (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total capacity; "
        "9.78 GiB already allocated; 9.56 MiB free; 46.37 MiB cached)",  # cached: reserved - allocated
        ("20 MiB", "10.92 GiB", "9.56 MiB", "9.78 GiB", "9.78 GiB + 46.37 MiB", None),
    ),
    "1.13": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 3; 4.00 GiB total capacity; "
        "3.44 GiB already allocated; 0 bytes free; 3.46 GiB reserved in total by PyTorch)" + ADVICE_OLD,
        ("2 MiB", "4 GiB", "0 bytes", "3.44 GiB", "3.46 GiB", None),
    ),
    "2.0, limited": (
        "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.69 GiB total capacity; 8.00 GiB allowed; 7.10 GiB "
        "already allocated; 15.20 GiB free; 7.90 GiB reserved in total by PyTorch)" + ADVICE_OLD,
        ("1.5 GiB", "23.69 GiB", "15.20 GiB", "7.10 GiB", "7.90 GiB", None),
    ),
    "2.1": (
        "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacty of 23.69 GiB of which 7.11 GiB is "
        "free. Process 2006998 has 256.00 MiB memory in use. Including non-PyTorch memory, this process has 16.31 GiB "
        "memory in use. Of the allocated memory 16.01 GiB is allocated by PyTorch, and 7.47 MiB is reserved by PyTorch "
        "but unallocated." + ADVICE.format("max_split_size_mb"),
        ("8 GiB", "23.69 GiB", "7.11 GiB", "16.01 GiB", None, "16.31 GiB"),
    ),
    "2.5": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.15 GiB. GPU 0 has a total capacity of 39.56 "
        "GiB of which 6.80 MiB is free. Including non-PyTorch memory, this process has 36.61 GiB memory in use. Of the "
        "allocated memory 31.66 GiB is allocated by PyTorch, and 4.11 GiB is reserved by PyTorch but unallocated."
        + ADVICE.format("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("3.15 GiB", "39.56 GiB", "6.80 MiB", "31.66 GiB", None, "36.61 GiB"),
    ),
    "2.9, private pools": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 298.00 MiB. GPU 1 has a total capacity of "
        "44.39 GiB of which 12.06 MiB is free. Including non-PyTorch memory, this process has 36.30 GiB memory in use. "
        "Process 6324 has 8.06 GiB memory in use. Of the allocated memory 35.00 GiB is allocated by PyTorch, with "
        "96.00 MiB allocated in private pools (e.g., CUDA Graphs), and 700.00 MiB is reserved by PyTorch but "
        "unallocated." + ADVICE.format("PYTORCH_ALLOC_CONF=expandable_segments:True"),
        ("298 MiB", "44.39 GiB", "12.06 MiB", "35 GiB", None, "36.30 GiB"),
    ),
    "HIP": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 63.98 "
        "GiB of which 0 bytes is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 3.00 GiB is "
        "reserved by PyTorch but unallocated.",
        ("1 GiB", "63.98 GiB", "0 bytes", "60 GiB", None, None),
    ),
    "XPU": (
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.11 "
        "GiB. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but "
        "unallocated.",
        ("2 GiB", "15.11 GiB", None, "12 GiB", None, None),
    ),
}  # fmt: skip


def size(text):
    return None if text is None else sum(parse_bytes(part) for part in text.split(" + "))


@pytest.mark.parametrize("version", TORCH)
def test_every_version_of_torch_says_the_same_things(version):
    text, (tried, total, free, allocated, reserved, process) = TORCH[version]
    (found,) = messages_in(f"step 12\n{text}\nexit 1\n")
    assert (found.tried, found.total, found.free) == (size(tried), size(total), size(free))
    assert (found.allocated, found.process) == (size(allocated), size(process))
    if reserved is not None:
        assert found.reserved == size(reserved)


@pytest.mark.parametrize("version", TORCH)
@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "> ", "  | "])
def test_wrapped_and_prefixed_lines_are_the_same_message(version, prefix):
    import textwrap

    text = TORCH[version][0]
    (plain,) = messages_in(text)
    wrapped = "\n".join(prefix + line for line in textwrap.wrap(text, 60, break_on_hyphens=False))
    (found,) = messages_in(wrapped)
    for name in ("tried", "total", "free", "allocated", "reserved", "process", "others", "allowed", "private_pools"):
        assert getattr(found, name) == getattr(plain, name), name


def test_other_processes_are_listed():
    (found,) = messages_in(TORCH["2.9, private pools"][0])
    assert found.others == (("6324", parse_bytes("8.06 GiB")),)
    assert found.private_pools == parse_bytes("96 MiB")
    assert found.device == "GPU 1"


def test_each_rank_and_a_repeated_message_count_once():
    one, other = TORCH["2.5"][0], TORCH["1.1"][0]
    assert len(messages_in("\n".join([one, other, one, one]))) == 2


OTHERS = {
    "cpu": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 137438953472 bytes. Error code 12 (Cannot allocate memory)", "torch", 137438953472,
    ),
    "mps": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GiB, other allocations: 84.00 MiB, max allowed: "
        "18.13 GiB). Tried to allocate 1.17 GiB on private pool.", "torch", parse_bytes("1.17 GiB"),
    ),
    "llama.cpp": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of "
        "memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 8589934592", "llama.cpp", 8589934592,
    ),
    "vllm cache": (
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (6.21 GiB). Based on the available memory, the "
        "estimated maximum model length is 50832.", "vLLM", parse_bytes("16 GiB"),
    ),
    "vllm startup": (
        "ValueError: Free memory on device (38.2/79.15 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 71.24 GiB).", "vLLM", parse_bytes("71.24 GiB"),
    ),
    "sglang pool": (
        "[TP0] Prefill out of memory. Try to lower your batch size.\nTry to allocate 1024 tokens.\n"
        "Available tokens: 512",
        "SGLang", None,
    ),
    "tensorrt-llm parts": (
        "[TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: Executor creation failed due to insufficient "
        "GPU memory.\n\nThe following component could not be created: KV cache\nTotal GPU memory (GiB): 140.06\nFree "
        "GPU memory before component creation attempt (GiB): 108.86\n\nPreviously created components and free GPU "
        "memory before/after creation (GiB):\nModel: 139.55 / 110.70\nSampler: 110.70 / 110.70", "TensorRT-LLM", None,
    ),
    "cudaMallocAsync": (
        "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 11.05 GiB\nRequested               : 108.00 MiB\n"
        "Device limit            : 12.00 GiB\nFree (according to CUDA): 0 bytes\n"
        "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
        "torch", parse_bytes("108 MiB"),
    ),
    "vllm old": ("ValueError: No available memory for the cache blocks. Try increasing it.", "vLLM", None),
    "numpy": (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array with shape (4000000000,) "
        "and data type float64", "NumPy", parse_bytes("29.8 GiB"),
    ),
    "xla": ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234 bytes.", "XLA", 1234),
    "bare": ("RuntimeError: CUDA error: out of memory", "CUDA", None),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs_are_read_and_get_two_changes(name):
    text, program, tried = OTHERS[name]
    found = diagnose_text(text)
    assert {item.program for item in found} == {program}
    assert found[0].asked == tried
    assert all(len(item.changes) == 2 and item.cause for item in found)


TRACE = """Traceback (most recent call last):
  File "/home/u/train.py", line 31, in <module>
    {outer}
  File "{file}", line 77, in {name}
    {code}
    ^^^^^^^^^
"""
SITE = "/v/lib/python3.12/site-packages/"


@pytest.mark.parametrize(
    ("file", "name", "code", "kind", "change"),
    [
        ("transformers/loss/loss_utils.py", "ForCausalLMLoss", "logits = logits.float()", "logits and loss", "loss"),
        ("torch/nn/functional.py", "cross_entropy", "return _nn.cross_entropy_loss(", "logits and loss", "loss"),
        ("transformers/models/llama/modeling_llama.py", "forward", "self.lm_head(x)", "logits and loss", "loss"),
        ("transformers/models/llama/modeling_llama.py", "eager_attention_forward", "torch.matmul(query, k)",
         "attention scores", "attention sdpa"),
        ("torch/optim/adamw.py", "_multi_tensor_adamw", "_foreach_sqrt(x)", "optimizer temporaries", "optimizer_"),
        ("torch/optim/adam.py", "_init_group", "torch.zeros_like(p)", "optimizer states", "optimizer adamw-8bit"),
        ("transformers/cache_utils.py", "update", "torch.cat([self.keys, k], dim=-2)", "KV cache", "half the batch"),
        ("torch/nn/modules/module.py", "_apply", "param_applied = fn(param)", "weights", "dtype bf16"),
        ("transformers/models/llama/modeling_llama.py", "forward", "self.act_fn(self.gate_proj(x))", "activations",
         "checkpointing full"),
        ("torch/autograd/graph.py", "_engine_run_backward", "Variable._execution_engine.run_backward(", "gradients",
         "checkpointing full"),
        ("bitsandbytes/functional.py", "dequantize_4bit", "out = torch.empty(", "unpacked weights", "micro_batch_size"),
        ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather", "empty(",
         "communication buffers",         "reshard_after_forward"),
    ],
)  # fmt: skip
def test_the_failing_line_names_the_kind_and_the_change(file, name, code, kind, change):
    trace = TRACE.format(outer="main()", file=SITE + file, name=name, code=code)
    (found,) = diagnose_text(
        trace + TORCH["2.9, private pools"][0].replace("8.06 GiB", "1.00 MiB").replace("700.00", "7.00")
    )
    assert found.kind == kind
    assert found.changes[0].what.startswith(change)
    assert found.stack[0].name == name


def test_reserved_and_unused_memory_is_fragmentation():
    (found,) = diagnose_text(TORCH["2.5"][0])
    assert found.cause.startswith("fragmentation: 4.11 GiB is reserved and unused")
    assert "expandable_segments:True" in found.changes[0].what
    assert found.fragmentation == parse_bytes("4.11 GiB")


def test_what_tensorrt_llm_made_before_is_what_holds_the_card():
    (found,) = diagnose_text(OTHERS["tensorrt-llm parts"][0])
    assert found.cause == "no room was left to make this part: KV cache"
    assert (found.total, found.free) == (parse_bytes("140.06 GiB"), parse_bytes("108.86 GiB"))
    assert found.holdings == (("model", parse_bytes("139.55 GiB") - parse_bytes("110.70 GiB")),)


def test_cudas_own_pool_says_what_the_allocator_would():
    (found,) = diagnose_text(OTHERS["cudaMallocAsync"][0])
    assert (found.device, found.total, found.free) == ("GPU 0", parse_bytes("12 GiB"), 0)
    assert found.allocated == parse_bytes("11.05 GiB")
    assert found.limit is None


def test_ranks_that_share_a_card_are_the_cause_before_fragmentation():
    """github.com/Lightricks/LTX-2/issues/57: four processes started on a machine with two cards."""
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a total capacity of 79.10 "
        "GiB of which 15.19 MiB is free. Process 16746 has 20.84 GiB memory in use. Process 16747 has 20.33 GiB "
        "memory in use. Process 16748 has 18.94 GiB memory in use. Process 16749 has 18.94 GiB memory in use. Of the "
        "allocated memory 19.60 GiB is allocated by PyTorch, and 225.59 MiB is reserved by PyTorch but unallocated."
    )
    (found,) = diagnose_text(text)
    assert found.cause.startswith("4 processes of about the same size hold 79.05 GiB of this one card")
    assert "CUDA_VISIBLE_DEVICES" in found.changes[0].what
    (alone,) = diagnose_text(text.replace("20.33", "0.33").replace("18.94", "0.20"))
    assert alone.cause.startswith("fragmentation")


def test_another_process_is_named():
    (found,) = diagnose_text(TORCH["2.9, private pools"][0].replace("700.00 MiB", "7.00 MiB"))
    assert found.cause == "process 6324 holds 8.06 GiB of the card"
    assert found.changes[0].what == "end process 6324, or take another card"


def test_a_limit_is_named():
    (found,) = diagnose_text(TORCH["2.0, limited"][0])
    assert "may take only 8.00 GiB" in found.cause


def test_a_tensor_larger_than_the_card_is_named():
    (found,) = diagnose_text(TORCH["1.1"][0].replace("20.00 MiB", "200.00 GiB"))
    assert found.cause.startswith("one tensor is larger than the whole card")


def test_a_text_without_a_message_is_refused_in_one_sentence():
    with pytest.raises(UsageError, match="no out-of-memory message found"):
        diagnose_text("everything went well\n" * 100)


@given(st.text(max_size=200), st.sampled_from(sorted(TORCH)), st.integers(0, 400), st.text(max_size=60))
def test_any_text_around_or_inside_a_message_is_read_without_failing(before, version, cut, inside):
    text = TORCH[version][0]
    for message in messages_in(f"{before}\n{text[:cut]}{inside}{text[cut:]}"):
        assert message.tried is None or message.tried >= 0


def test_a_process_in_a_container_is_not_taken_for_another():
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which "
        "1.12 GiB is free. Process 1234 has 22.51 GiB memory in use. Of the allocated memory 20.10 GiB is "
        "allocated by PyTorch, and 1.90 GiB is reserved by PyTorch but unallocated."
    )
    (message,) = messages_in(text)
    assert message.process == parse_bytes("22.51 GiB")
    assert message.others == ()
    assert "process 1234" not in diagnose_text(text)[0].cause


def test_expandable_segments_are_named_where_they_join_what_is_spare_and_what_is_free():
    (found,) = diagnose_text(
        "CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.12 GiB is "
        "free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated memory 20.90 "
        "GiB is allocated by PyTorch, and 1.18 GiB is reserved by PyTorch but unallocated."
        + ADVICE.format("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    )
    assert found.cause.startswith("fragmentation: 1.18 GiB is reserved and unused")
    assert "expandable_segments:True" in found.changes[0].what


FIRST_STEP = """Traceback (most recent call last):
  File "train.py", line 10, in <module>
    optimizer.step()
  File "/usr/lib/python3/site-packages/torch/optim/adamw.py", line 177, in step
    has_complex = self._init_group(
  File "/usr/lib/python3/site-packages/torch/optim/adamw.py", line 118, in _init_group
    state["exp_avg_sq"] = torch.zeros_like(
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB (GPU 0; 15.77 GiB total capacity; 14.53
GiB already allocated; 134.88 MiB free; 14.71 GiB reserved in total by PyTorch)"""


def test_states_that_are_being_made_are_the_cause_however_much_is_spare():
    (found,) = diagnose_text(FIRST_STEP)
    assert found.cause.startswith("the optimizer makes its states in its first step")
    assert [change.what.split()[0] for change in found.changes] == ["optimizer", "offload_optimizer"]
    assert found.kind == "optimizer states"
    assert where_of(found.stack) == "train.py:10 <module> (adamw.py:118 _init_group)"


def test_the_length_that_vllm_names_is_the_change():
    (found,) = diagnose_text(OTHERS["vllm cache"][0])
    assert found.changes[0].what == "--max-model-len 50832"


@pytest.mark.parametrize("line", ["", "\n"])
def test_many_messages_cost_work_in_proportion(line):
    """What 8,000 take is about twice what 4,000 take, not four times."""
    one = f"failed to allocate CUDA0 buffer of size 7{line} CUDA out of memory. Tried to allocate 20 MiB{line}"
    counts = []
    for many in (MOST_MESSAGES // 4, MOST_MESSAGES // 2):
        profile = cProfile.Profile()
        profile.runcall(messages_in, one * many)
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    assert counts[1] < 2.5 * counts[0]


WORDINGS = [*(one for family in (engines, torch, compilers, drivers, host) for one in family.WORDINGS)]
WORDINGS += [*host.WEAK, *compilers.WEAK]


@pytest.mark.parametrize("wording", WORDINGS, ids=lambda one: one.name)
@given(data=st.data())
def test_whatever_a_sign_matches_has_one_of_its_words(wording, data):
    text = data.draw(st.from_regex(wording.sign))
    assert any(words in text for words in wording.words)


def test_a_log_without_a_message_is_read_in_a_fraction_of_the_time(monkeypatch):
    """Of 10 MB nothing is looked at by regular expressions, which took ten seconds."""
    monkeypatch.setattr("vramwise.measure.messages.finding.re", None)
    assert failures_in("step 1234 loss 1.2345 memory 12.3 GiB, 1,234 tokens/s\n" * 1000) == []


def test_cards_that_were_full_of_buffers_of_one_size_are_failures_of_their_own():
    text = "".join(
        f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 100.00 MiB on device {card}: cudaMalloc failed: out "
        f"of memory\nalloc_tensor_range: failed to allocate CUDA{card} buffer of size 104857600\n"
        for card in (0, 1)
    )
    assert [found.device for found in diagnose_text(text)] == ["GPU 0", "GPU 1"]


@pytest.mark.parametrize(
    ("before", "memory"),
    [
        ("loader = DataLoader(data, pin_memory=True)", "device"),
        ("TrainingArguments(dataloader_pin_memory=True)", "device"),
        ("    return data.pin_memory(device)", "pinned host"),
        ('  File "torch/utils/data/_utils/pin_memory.py", line 98, in pin_memory', "pinned host"),
    ],
)
def test_a_setting_that_names_pinned_memory_is_no_failure_of_it(before, memory):
    (found,) = diagnose_text(f"{before}\nRuntimeError: CUDA error: out of memory\n")
    assert found.memory == memory


def test_the_setting_against_fragmentation_is_that_of_the_device():
    text = (
        "XPU out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB. Of the allocated "
        "memory 12.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated."
    )
    (found,) = diagnose_text(text)
    assert found.changes[0].what.startswith("PYTORCH_ALLOC_CONF=expandable_segments:True")
    assert "CUDA" not in found.changes[0].what


def test_an_engine_is_found_by_what_its_makers_call_it() -> None:
    for engine in records.engines():
        assert records.engine_titled(engine.title) is engine
    assert records.engine_titled("no such engine") is None
