"""TrainerCheck in a real, tiny Trainer on CPU: before the first step it says whether the training fits its card."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from vramwise.checking.trainer import DoesNotFitError, TrainerCheck
from vramwise.errors import UsageError

SIZES = {
    "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip
LENGTH = 48


class Stepped(transformers.TrainerCallback):
    steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1


def train(check, tmp_path, *, rows=None, **arguments):
    """Steps that were made."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    if rows is None:
        rows = [{"input_ids": list(range(LENGTH)), "labels": list(range(LENGTH))} for _ in range(4)]
    settings = transformers.TrainingArguments(
        str(tmp_path), max_steps=1, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no",
        logging_strategy="no", disable_tqdm=True, **arguments,
    )  # fmt: skip
    stepped = Stepped()
    trainer = transformers.Trainer(model, settings, train_dataset=rows, callbacks=[check, stepped])
    trainer.train()
    return stepped.steps


def test_what_fits_passes_in_silence(tmp_path):
    check = TrainerCheck("raise", gpu="rtx-4090")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert train(check, tmp_path) == 1
    found, taken = check.look.found, check.look.taken
    assert found.word == "fits"
    assert taken.train["micro_batch_size"] == 2
    assert taken.train["sequence_length"] == LENGTH
    assert taken.top["model"]["hidden_size"] == 64
    assert any("models beside this one" in text for text in check.look.unseen)


def test_what_does_not_fit_stops_before_the_first_step(tmp_path):
    check = TrainerCheck("raise", gpu_total_bytes=50 * 2**20)
    with pytest.raises(DoesNotFitError, match=r"does not fit .*: needs .*; not seen: ") as error:
        train(check, tmp_path)
    assert error.value.exit_code == 3
    assert check.look.found.room_bytes == 50 * 2**20


def test_a_warning_lets_it_go_on(tmp_path):
    check = TrainerCheck(gpu_total_bytes=50 * 2**20)
    with pytest.warns(RuntimeWarning, match="this training does not fit"):
        assert train(check, tmp_path) == 1


def test_without_a_card_it_says_that_it_did_not_check(tmp_path, monkeypatch):
    from vramwise.hardware.machine import nvml

    monkeypatch.setattr(nvml, "this_machine", lambda: None)
    check = TrainerCheck("raise")
    with pytest.warns(RuntimeWarning, match="not checked: gpu: here: no GPU answers"):
        assert train(check, tmp_path) == 1
    assert check.look.found is None


def test_lengths_that_it_cannot_see_are_said(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                yield {"input_ids": torch.arange(LENGTH), "labels": torch.arange(LENGTH)}

    check = TrainerCheck(gpu="rtx-4090")
    assert train(check, tmp_path, rows=Stream()) == 1
    assert check.look.taken.train["sequence_length"] == SIZES["max_position_embeddings"]
    assert "how long the samples are: 256 tokens are taken" in check.look.unseen[0]
    told = TrainerCheck(gpu="rtx-4090", sequence_length=LENGTH)
    assert train(told, tmp_path, rows=Stream()) == 1
    assert told.look.taken.train["sequence_length"] == LENGTH


def test_of_many_samples_the_first_are_looked_at(tmp_path):
    rows = [{"input_ids": list(range(5 + i))} for i in range(300)]
    check, model = TrainerCheck(gpu="rtx-4090"), transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    settings = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    batches, optimizer = torch.utils.data.DataLoader(rows), torch.optim.AdamW(model.parameters())
    check.on_train_begin(settings, None, None, model=model, optimizer=optimizer, train_dataloader=batches)
    assert check.look.taken.train["sequence_length"] == 260
    assert "samples behind the first 256, of which the longest has 260 tokens" in check.look.unseen[0]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers 5 by an old name
def test_peft_and_16_bit_are_read(tmp_path):
    peft = pytest.importorskip("peft")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).to(torch.bfloat16)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    check = TrainerCheck(gpu="rtx-4090")
    settings = transformers.TrainingArguments(str(tmp_path), bf16=True, use_cpu=True, report_to=[])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    check.on_train_begin(settings, None, None, model=model, optimizer=optimizer, train_dataloader=None)
    train_table = check.look.taken.train
    assert (train_table["method"], train_table["lora_rank"], train_table["param_dtype"]) == ("lora", 4, "bf16")
    assert check.look.found.word == "fits"


def test_an_unknown_action_is_refused():
    with pytest.raises(UsageError, match='expected warn or raise, got "stop"'):
        TrainerCheck("stop")


def test_free_memory_is_what_this_process_had_before_its_model(monkeypatch):
    from vramwise.checking import trainer
    from vramwise.hardware import context_bytes, find_gpu
    from vramwise.scenario import Scenario
    from vramwise.units import GIB

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: ((10 + index) * GIB, 24 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 5 * GIB)
    asked = Scenario.from_dict({"model": "llama-3.1-8b", "task": "train", "gpu": "rtx-4090"})
    for device, free in (("cuda", 15), ("cuda:0", 15), ("cuda:2", 17)):
        found = trainer._with_free_memory(asked, device)
        assert found.gpu_free_bytes == free * GIB + context_bytes(find_gpu("rtx-4090").gpu).expected
