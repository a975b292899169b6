"""What frameworks do where a scenario says nothing: how a record states it, and what several have in common.

The first of a record's defaults that holds decides a key. `when` is a list of conditions, all of which must hold:

    KEY=A|B            a key of the train table, as stated or as decided by a default above
    PACKAGE>=1.2       a version; a package that is not named is the newest
    month<2025-02      the month that is named in place of a version; the newest where none is
    zero, fsdp         whether either shares the model's states
    tensor_parallel_size>=2, pipeline_parallel_size>=2
    gpus=1, gpus>1     of the whole job
    copies>1           the job has more GPUs than one copy is cut over
    checkpoint=A|B     dtype of the checkpoint
    type=A|B           model type
    kernels=A|B        one of the kernel libraries that are asked for
    parameters>=7e10   of the model; vocabulary<128000
    modules=A|B        all of them are names of the model's modules
    open:KEY           the scenario does not state the key
    names:PROGRAM      framework_version names it, whatever its version

Values are those of the key, but `checkpoint` is the checkpoint's dtype and `weights` that of the weights. `param_dtype`
is decided only where `precision` is open too: a stated precision has its own dtypes.
"""

from __future__ import annotations

from vramwise.records import record


@record
class Default:
    """A setting of a framework: when it holds, its key and value, and the file and version in which it was read."""

    when: str
    key: str
    value: str
    source: str

    @property
    def conditions(self) -> list[str]:
        return self.when.split()


MASTERS_UNDER_ZERO = Default("zero", "precision", "bf16-master",
                             "transformers 5.23 integrations/deepspeed.py: bf16 auto follows --bf16; "
                             "DeepSpeed 0.19 runtime/engine.py casts the module and keeps fp32 copies")  # fmt: skip
UPCAST_BY_FSDP = Default("fsdp method=full", "param_dtype", "fp32",
                         "accelerate 1.15 accelerator.py prepare_model, utils/fsdp_utils.py: trained "
                         "weights of FSDP under mixed precision become fp32")  # fmt: skip
ADAPTERS_CAST_TO_BF16 = Default("precision=bf16-master", "lora_dtype", "bf16",
                                "DeepSpeed 0.19 runtime/engine.py: the whole module is cast, adapters "
                                "too")  # fmt: skip
ADAPTERS_CAST_TO_FP16 = Default("precision=fp16-master", "lora_dtype", "fp16",
                                "DeepSpeed 0.19 runtime/engine.py: the whole module is cast, adapters "
                                "too")  # fmt: skip
FUSED_ADAMW = Default("optimizer=adamw transformers>=4.54 torch>=2.8", "optimizer_impl", "fused",
                      "transformers 4.54 to 5.23 training_args.py: default_optim adamw_torch_fused "
                      "since torch 2.8")  # fmt: skip
LOOPED_ADAMW = Default("optimizer=adamw transformers<4.32", "optimizer_impl", "for-loop",
                       "transformers 4.31 training_args.py: default_optim adamw_hf (adamw_torch in "
                       "4.33)")  # fmt: skip
LOOPED_ADAMW_BEFORE_TORCH_2 = Default("optimizer=adamw torch<2.0", "optimizer_impl", "for-loop",
                                      "torch 1.13 optim/adamw.py: foreach False unless asked for")  # fmt: skip
ZEROED_BEFORE_TORCH_2 = Default("torch<2.0", "set_to_none", "false",
                                "torch 1.13 nn/modules/module.py, optim/optimizer.py: zero_grad(set_to_none=False), "
                                "True since 2.0; transformers 4.31 trainer.py: model.zero_grad()")  # fmt: skip
