"""Models without their weights: transformers' `from_pretrained` makes the class from its config."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any, Final

from vramwise.errors import VramwiseError
from vramwise.measure.building import config_of
from vramwise.measure.libraries import is_installed, library

_OF_MODELS: Final = frozenset({
    "config", "dtype", "torch_dtype", "attn_implementation", "quantization_config", "device_map", "state_dict",
})  # fmt: skip
"""Keywords of `from_pretrained` that say something of the model and nothing of its config."""


def weights_from_configs() -> list[tuple[object, str, object]]:
    """`from_pretrained` of configs, auto classes and classes, and a loader that stays in this process."""
    torch = library("torch")
    loader = torch.utils.data.DataLoader
    make = loader.__init__

    def alone(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs |= {"num_workers": 0, "pin_memory": False, "persistent_workers": False, "prefetch_factor": None}
        kwargs.pop("multiprocessing_context", None)
        make(self, *args[:5], **kwargs)

    found: list[tuple[object, str, object]] = [(loader, "__init__", alone)]
    if not is_installed("transformers"):
        return found
    transformers = library("transformers")
    base = library("transformers.models.auto.auto_factory")._BaseAutoModelClass
    every = vars(library("transformers.models.auto.modeling_auto")).values()
    autos = {one for one in every if isinstance(one, type) and issubclass(one, base) and "from_pretrained" in vars(one)}
    read = transformers.AutoConfig.from_pretrained.__func__

    def config_from(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(cls, name, *args, **kwargs)
        except OSError:
            config = _config_of_catalog(str(name))
            gives_both = kwargs.pop("return_unused_kwargs", False)
            unused = {key: value for key, value in kwargs.items() if not hasattr(config, key)}
            for key in kwargs.keys() - unused.keys():
                setattr(config, key, kwargs[key])
            return (config, unused) if gives_both else config

    def configured(kind: Any, name: Any, kwargs: dict[str, Any]) -> Any:
        """The config that is given, or that of the name with what else was said of it; it says whose weights these are.

        transformers 5.23 modeling_utils.py `config.name_or_path = pretrained_model_name_or_path`, by which TRL's
        trainers find the tokenizer.
        """
        config = said_by(kind, name, kwargs)
        config.name_or_path = str(name)
        return config

    def said_by(kind: Any, name: Any, kwargs: dict[str, Any]) -> Any:
        given = kwargs.get("config")
        if given is not None and not isinstance(given, str):
            return copy.deepcopy(given)
        said = {key: value for key, value in kwargs.items() if key not in _OF_MODELS}

        def read_by(reader: Any) -> Any:
            return reader.from_pretrained(given or name, return_unused_kwargs=True, **said)[0]

        if kind is not None:
            with suppress(OSError):
                return read_by(kind)
        return read_by(transformers.AutoConfig)

    def auto_from(cls: Any, name: Any, *_: Any, **kwargs: Any) -> Any:
        config = configured(None, name, kwargs)
        return _made(lambda: cls.from_config(config, **_of_init(kwargs, config)), kwargs)

    def class_from(cls: Any, name: Any, *_: Any, **kwargs: Any) -> Any:
        config = configured(cls.config_class, name, kwargs)
        return _made(lambda: cls._from_config(config, **_of_init(kwargs, config)), kwargs)

    found += [
        (transformers.AutoConfig, "from_pretrained", classmethod(config_from)),
        *((auto, "from_pretrained", classmethod(auto_from)) for auto in {base, *autos}),
        (transformers.PreTrainedModel, "from_pretrained", classmethod(class_from)),
    ]
    return found


def _of_init(kwargs: dict[str, Any], config: Any) -> dict[str, Any]:
    """Keywords that a class made from a config takes too."""
    torch = library("torch")
    dtype = kwargs.get("dtype", kwargs.get("torch_dtype", "auto"))
    if dtype == "auto":
        dtype = getattr(config, "dtype", None)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype.removeprefix("torch."))
    found: dict[str, object] = {} if dtype is None else {"dtype": dtype}
    if kwargs.get("quantization_config") is not None:
        raise VramwiseError("a dry run has no fake of quantized layers' kernels: leave out quantization_config")
    if kwargs.get("attn_implementation") is not None:
        found["attn_implementation"] = kwargs["attn_implementation"]
    return found


def _made(make: Any, kwargs: dict[str, Any]) -> Any:
    """The model, in eval mode as loaded ones are, on the card where a device map says so."""
    where = kwargs.get("device_map")
    model = make().eval()
    return model.to("cuda") if where is not None and where != "cpu" else model


def _config_of_catalog(name: str) -> Any:
    from vramwise.sources import resolve

    return config_of(resolve(name).config)
