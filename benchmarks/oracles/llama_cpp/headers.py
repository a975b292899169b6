"""GGUF files of metadata and shapes alone, made by llama.cpp's own converter from a model's config.

    python headers.py LLAMA_CPP FOLDER MODEL... [KEY=JSON...]

LLAMA_CPP is a source tree (its `conversion` and `gguf-py` are imported), MODEL a model of the catalog, KEY=JSON what
the converter reads of a config and the catalog's lacks (`rotary_pct=0.25` of GPT-NeoX, the `mrope_section` of
Qwen3-VL and GLM-4.5V, in `text_config.rope_parameters`, the `rope_theta` of both kinds of layers of Gemma 4). The
weights are the real class's on the meta device, named as its checkpoints name them; no tokenizer, no values.
Reservations need no more.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    names = [word for word in sys.argv[3:] if "=" not in word]
    told = dict(word.split("=", 1) for word in sys.argv[3:] if "=" in word)
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            write_header(name, header_path(folder, name), told)
        except Exception as error:  # the next model is worth trying
            print(f"{name}: {type(error).__name__}: {error}"[:400], file=sys.stderr)


def header_path(folder: Path, name: str) -> Path:
    """Where the file of a model lies."""
    return folder / (name.replace("/", "--") + ".gguf")


def write_header(name: str, path: Path, told: dict[str, str]) -> None:
    """The header of a model's file in bf16; `told`: JSON values of the config by their dotted keys."""
    import gguf
    import torch
    import transformers
    from conversion import base, get_model_class  # type: ignore[import-not-found]

    from vramwise.sources import resolve

    config: dict[str, Any] = {key: value for key, value in resolve(name).config.items() if key != "quantization_config"}
    for key, value in told.items():
        *tables, last = key.split(".")
        table = config = json.loads(json.dumps(config))
        for each in tables:
            table = table[each]
        table[last] = json.loads(value)
    config["architectures"] = config.get("architectures") or [_class_name(config)]
    known = transformers.AutoConfig.for_model(**config)
    weights = _weights(known, config["architectures"][0])
    config = {**known.to_dict(), **config}
    if "text_config" in config:
        config["text_config"] = {**known.text_config.to_dict(), **config["text_config"]}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config), "utf-8")
        words = {str(i): i for i in range({**config, **config.get("text_config", {})}["vocab_size"])}
        tokenizer = {"model": {"vocab": words}, "added_tokens": []}  # some classes cut the embedding by it
        (Path(directory) / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
        kind = get_model_class(base.get_model_architecture(config, base.ModelType.TEXT))

        def lazy(shape: tuple[int, ...]) -> Any:
            meta = base.LazyTorchTensor.meta_with_dtype_and_shape(torch.bfloat16, shape)
            return base.LazyTorchTensor(meta=meta, args=(), func=lambda: None)

        def index_tensors(self: Any, remote_hf_model_id: str | None = None) -> dict[str, Any]:
            found = {}
            for key, shape in weights.items():
                kept = self.filter_tensors((key, lambda shape=shape: lazy(shape)))
                if kept:
                    found[kept[0]] = kept[1]
            return found

        def no_vocabulary(self: Any) -> None:
            self.gguf_writer.add_tokenizer_model("none")
            self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])

        base.ModelBase.index_tensors = index_tensors  # a class may have a step of its own around it
        base.ModelBase.no_mtp = True  # the classes have no layers for prediction
        kind = type(kind.__name__, (kind,), {"set_vocab": no_vocabulary, "model_arch": kind.model_arch})
        made = kind(Path(directory), gguf.LlamaFileType.MOSTLY_BF16, path, hparams=config)
        made.prepare_tensors()
        made.prepare_metadata(vocab_only=False)
        made.gguf_writer.write_header_to_file(path=path)
        made.gguf_writer.write_kv_data_to_file()
        made.gguf_writer.write_ti_data_to_file()
        end = sum(info.nbytes + 64 for part in made.gguf_writer.tensors for info in part.values())
        made.gguf_writer.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + end)  # a hole: takes no room on the disk


def _class_name(config: dict[str, Any]) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config["model_type"]])


def _weights(known: Any, architecture: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes in a checkpoint of the class."""
    import torch
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    kind = getattr(transformers, architecture, None)
    with torch.device("meta"):
        model = kind(known) if kind else transformers.AutoModelForCausalLM.from_config(known)  # type: ignore[no-untyped-call]
    ties = getattr(model, "_tied_weights_keys", None) or {}
    tied = set(ties) if known.get_text_config().tie_word_embeddings else set()
    state = {key: tensor for key, tensor in model.state_dict().items() if key not in tied}
    return {key: tuple(tensor.shape) for key, tensor in revert_weight_conversion(model, state).items()}


if __name__ == "__main__":
    main()
