"""watch() over real runs on CPU: a plain torch loop, transformers' Trainer, Lightning where it is installed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import vramwise
from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.watching.given import expected

SIZES = {
    "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip
CONFIG = {"model_type": "llama", **SIZES}
LENGTH = 64
SCENARIO = {
    "model": CONFIG,
    "task": "train",
    "train": {"precision": "fp32", "micro_batch_size": 2, "sequence_length": LENGTH},
}
NUM_PARAMETERS = vramwise.describe(CONFIG).num_parameters


def tiny_model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def train(watched, model, optimizer, batches):
    for batch in batches:
        ids = torch.randint(0, 512, (batch, LENGTH))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watched.step()


def followed(scenario, batches, make_optimizer=torch.optim.AdamW):
    lines = []
    model = tiny_model()
    optimizer = make_optimizer(model.parameters(), lr=1e-4)
    with vramwise.watch(scenario, model=model, optimizer=optimizer, log=lines.append) as watched:
        train(watched, model, optimizer, batches)
    assert not model._forward_hooks
    assert not optimizer._optimizer_step_pre_hooks
    return watched, lines


def test_a_plain_loop_is_told_beside_its_estimate():
    watched, lines = followed(SCENARIO, [2, 2, 2])
    assert [row.step for row in watched.rows] == [1, 2, 3]
    # The estimate is CUDA's: a CPU keeps a little less for the loss.
    assert not any(departure.is_above for departure in watched.departures)
    assert not any("WARNING" in line for line in lines)
    assert watched.account.peak.allocated == pytest.approx(
        expected(watched.result, on_cpu=True)["peak_allocated"].expected, rel=0.1
    )
    seen = watched.account.observed
    assert (seen.batch_size, seen.sequence_length) == (2, LENGTH)
    assert seen.gradients == 4 * NUM_PARAMETERS
    assert seen.optimizer_states == pytest.approx(8 * NUM_PARAMETERS, rel=0.01)
    moments = {phase.name: phase.bytes for phase in watched.measured.phases}
    assert moments["optimizer step"] > moments["backward end"] > 16 * NUM_PARAMETERS * 0.99
    # The states come with the first step of the optimizer.
    first, second, third = (row.allocated for row in watched.rows)
    assert first < second == third
    assert "3 steps, most at step 2" in lines[-2]


def test_sizes_are_counted_until_they_no_longer_change(monkeypatch):
    """Gradients before a step and states after it, of the first three: a long run is not slowed."""
    counted = []
    monkeypatch.setattr("vramwise.watching.hooks.storage_bytes", lambda *_: counted.append(len(counted)) or 0)
    followed(SCENARIO, [2] * 5)
    assert len(counted) == 1 + 3 + 3  # the model's own once


def test_larger_batches_are_the_reason_that_the_warning_names():
    watched, lines = followed(SCENARIO, [2, 2, 8])
    (departure,) = watched.departures
    assert departure.is_above
    assert departure.step == 3
    assert departure.reasons[0].term == "micro_batch_size"
    assert departure.reasons[0].bytes > 0
    assert any("batches are larger than stated (micro_batch_size 8, 2 was stated)" in line for line in lines)
    assert sum("WARNING" in line for line in lines) == 1


def test_a_run_is_saved_as_a_measured_case_with_the_sizes_that_were_seen(tmp_path, capsys):
    watched, _ = followed(SCENARIO, [2, 8])
    watched.save(str(tmp_path / "cases.jsonl"))
    (case,) = map(json.loads, (tmp_path / "cases.jsonl").read_text("utf-8").splitlines())
    assert case["measured"]["peak_allocated"] == watched.account.peak.allocated
    assert case["scenario"]["train"]["micro_batch_size"] == 8
    assert case["extra"]["seen_otherwise_than_stated"] == {"micro_batch_size": 8}
    assert main(["accuracy", str(tmp_path / "cases.jsonl")]) == 0
    assert "peak_allocated" in capsys.readouterr().out
    with pytest.raises(UsageError, match="2 whole steps"):
        followed(SCENARIO, [2])[0].save(str(tmp_path / "cases.jsonl"))


def test_an_optimizer_that_was_not_stated_is_the_reason():
    scenario = {**SCENARIO, "train": {**SCENARIO["train"], "optimizer": "sgd"}}
    watched, _ = followed(scenario, [2, 2, 2])
    assert [reason.term for reason in watched.departures[0].reasons] == ["optimizer states"]


def test_what_was_seen_of_a_trainer_is_its_scenario(tmp_path):
    lines = []
    # The reading of the log is the callback's own; the trainer's other output is not looked at.
    callback = vramwise.watch(log=lines.append).trainer_callback()
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 512, (16, LENGTH))]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        max_steps=3, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, max_grad_norm=0.0,
        optim="adamw_torch", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = transformers.Trainer(tiny_model(), arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    watched = callback.watched
    train_table = watched.scenario.train
    assert (train_table.micro_batch_size, train_table.sequence_length) == (2, LENGTH)
    assert train_table.gradient_accumulation_steps == 2
    assert (train_table.precision, train_table.method, train_table.optimizer) == ("fp32", "full", "adamw")
    assert train_table.clip_grad_norm is False
    assert any("micro_batch_size 2 from per_device_train_batch_size" in line for line in lines)
    assert len(watched.rows) == 3
    assert not any("WARNING" in line for line in lines)
    assert trainer.state.log_history[1]["vramwise/allocated_gib"] > 0
    assert trainer.state.log_history[1]["vramwise/allocated_estimated_gib"] > 0


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks by the old name
def test_a_peft_model_in_bf16_is_read_as_lora():
    peft = pytest.importorskip("peft")
    from vramwise.watching.reading import read_training

    model = peft.get_peft_model(tiny_model().to(torch.bfloat16), peft.LoraConfig(r=4, target_modules=["q_proj"]))
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1e-3, momentum=0.9)
    taken = read_training(model, optimizer, {"bf16": True, "per_device_train_batch_size": 4}, (4, 32))
    result = vramwise.estimate(taken.scenario())
    table = result.scenario["train"]
    assert (table["method"], table["lora_rank"], table["lora_targets"]) == ("lora", 4, ["q_proj"])
    assert (table["precision"], table["param_dtype"], table["optimizer"]) == ("bf16-mixed", "bf16", "sgd-momentum")
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert result.model.num_trainable_parameters == trainable


def test_a_trainer_goes_on_without_an_estimate():
    from vramwise.watching.following import Follower

    lines = []
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    follower = Follower(vramwise.watch(log=lines.append), "pytorch", {})
    follower.begin(model, optimizer, {})
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    follower.step()
    follower.end()
    assert any("no estimate: Linear has no transformers config" in line for line in lines)
    assert follower.watched.rows[0].allocated > 0


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning_runs_the_same_watch(tmp_path):
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = tiny_model()

        def training_step(self, batch, _):
            return self.model(input_ids=batch, labels=batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    callback = vramwise.watch(log=[].append).lightning_callback()
    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randint(0, 512, (4, LENGTH)), batch_size=2))
    assert callback.watched.scenario.train.micro_batch_size == 2
    assert len(callback.watched.rows) == 2


def test_a_step_of_lightning_ends_where_its_optimizer_stepped(monkeypatch):
    """Of its callback two hooks are called here as its Trainer calls them, twice for each step of two micro-batches."""
    monkeypatch.setattr("vramwise.watching.following._lightning", lambda: SimpleNamespace(Callback=object))
    callback = vramwise.watch(log=[].append).lightning_callback()
    model = tiny_model()
    optimizer, logged = torch.optim.AdamW(model.parameters()), []
    module = torch.nn.ModuleDict({"model": model})
    module.log_dict = logged.append
    trainer = SimpleNamespace(
        optimizers=[optimizer], global_step=0, logger=object(), accumulate_grad_batches=2, world_size=1,
        gradient_clip_val=None, precision="32-true", max_steps=2,
    )  # fmt: skip
    callback.on_train_start(trainer, module)
    for batch in range(4):
        ids = torch.randint(0, 512, (2, LENGTH))
        model(input_ids=ids, labels=ids).loss.backward()
        if batch % 2:
            optimizer.step()
            optimizer.zero_grad()
            trainer.global_step += 1
        callback.on_train_batch_end(trainer, module)
        assert len(logged) == (batch + 1) // 2
    callback.on_train_end(trainer, module)
    assert len(callback.watched.rows) == 2


def test_without_lightning_one_line_says_so(monkeypatch):
    monkeypatch.setattr("vramwise.watching.following.is_installed", lambda name: False)
    with pytest.raises(vramwise.VramwiseError, match="pip install lightning"):
        vramwise.watch(SCENARIO).lightning_callback()


def test_running_out_of_memory_is_read_and_not_swallowed():
    lines = []
    words = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.55 GiB of which 1.20 GiB is "
        "free. Including non-PyTorch memory, this process has 22.30 GiB memory in use. Of the allocated memory 19.00 "
        "GiB is allocated by PyTorch, and 2.80 GiB is reserved by PyTorch but unallocated."
    )
    with pytest.raises(RuntimeError, match="out of memory"), vramwise.watch(SCENARIO, log=lines.append):
        raise RuntimeError(words)
    assert any("out of memory at step 1" in line for line in lines)
    assert any("fragment" in line for line in lines)


def test_a_scenario_comes_from_files_results_and_cases(tmp_path):
    from vramwise.watching.given import scenario_of

    result = vramwise.estimate(SCENARIO)
    (tmp_path / "result.json").write_text(result.to_json(), "utf-8")
    (tmp_path / "scenario.json").write_text(json.dumps(SCENARIO), "utf-8")
    case = {"id": "a", "scenario": SCENARIO, "measured": {"peak_allocated": 1}}
    for given in (tmp_path / "scenario.json", str(tmp_path / "result.json"), result, result.to_dict(), case):
        scenario, _ = scenario_of(given)
        assert scenario.train.sequence_length == LENGTH
    with pytest.raises(UsageError, match="expected a Scenario"):
        scenario_of(7)


def test_a_watch_is_begun_once_and_stepped_inside():
    watched = vramwise.watch(SCENARIO, log=[].append)
    with pytest.raises(UsageError, match="with block"):
        watched.step()
    with watched, pytest.raises(UsageError, match="running already"):
        watched.begin()


def test_tensors_without_memory_are_not_counted() -> None:
    """Such as torch.compile leaves behind."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vramwise.watching.meters import storage_bytes

    real = torch.zeros(1000)
    with FakeTensorMode():
        fake = torch.zeros(10**9)
    assert storage_bytes([real, fake], "cpu") == storage_bytes([real], "cpu") == 4000
