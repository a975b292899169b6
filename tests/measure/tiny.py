"""A tiny Llama and short ways to run it."""

from __future__ import annotations

import gc

from vramwise import estimate
from vramwise.measure.job import Job

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip
TRAIN = {"precision": "fp32", "attention": "eager", "micro_batch_size": 2, "sequence_length": 64}
FLAGS = ("--task", "train", "--precision", "fp32", "--attention", "eager", "--sequence-length", "64",
         "--micro-batch-size", "2")  # fmt: skip


def estimated(task, **settings):
    return estimate({"model": CONFIG, "task": task, "serve" if task == "load" else task: settings})


def job_of(task, steps=3, **settings):
    """The job of a scenario on the CPU."""
    return Job(CONFIG, "tiny", estimated(task, **settings).scenario, "cpu", steps)


def local_run(job, recorder=None):
    """A run in this process, over; its recorder has the events. Processes of their own are tested elsewhere."""
    from vramwise.measure.local_run import LocalRun

    gc.collect()
    found = LocalRun(job, lambda *_: None)
    if recorder is not None:
        found.recorder = recorder
    return found, found.report()


def here(job, progress, timeout_s):
    """What `run_job` does, without a process of its own."""
    return [local_run(job)[1]]
