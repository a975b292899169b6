"""A model's `config.json` read with one vocabulary and checked values.

The dtype of a checkpoint's weights, as far as its config tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import SourceError
from vramwise.formats import dtype
from vramwise.models.type_facts import ANY, has_fact

LARGEST_SIZE = 2**40
MOST_LAYERS = 4096
"""Four times the deepest transformer published (DeepNet, arXiv 2203.00555: 1,000 layers); every layer is built."""
_COUNTS_OF_LAYERS = frozenset(
    {
        "n_layer",
        "blocks_per_stage",
        "depths",
        "num_encoder_blocks",
        "altup_num_inputs",
        "depth",
        "first_k_dense_replace",
        "inner_group_num",
        "num_blocks",
        "num_code_groups",
        "num_layers_per_stack",
        "num_res_blocks",
        "resampler_depth",
    }
)
"""Keys that say how often something is built, beside every one that ends in `layers`."""

# Names that other families give to the same size; the first that is present counts.
_ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_key_value_heads",),
    "intermediate_size": ("intermediate_size", "ffn_dim", "n_inner", "d_ff"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
}


class Config:
    """Checked access to a config: a wrong value is one clear line, not a traceback later.

    Whatever reads a value raises SourceError, which names the key, for one of another kind or out of its range; sizes
    go up to 2^40 (`LARGEST_SIZE`), numbers of layers up to `MOST_LAYERS`.
    """

    def __init__(self, values: Mapping[str, Any], model_id: str = "") -> None:
        self.values = values
        self.model_id = model_id

    @property
    def model_type(self) -> str:
        """The `model_type`; empty where the config has none."""
        return str(self.values.get("model_type") or "")

    def get(self, name: str, default: object = None) -> Any:
        """A raw value; an explicit null counts as absent."""
        value = self.values.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Whether there is a value that is not null."""
        return self.values.get(name) is not None

    def size(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least` under the first of these names (or an alias of it) that has a value.

        `default` where none has; without one, SourceError, which is also raised for what is no such number.
        """
        for name in names:
            for alias in _ALIASES.get(name, (name,)):
                value = self.values.get(alias)
                if value is not None:
                    return self._checked(alias, value, least)
        if default is None:
            raise self.error(f"{names[0]} is missing")
        return default

    def sizes(self, name: str, *, least: int = 1) -> list[int]:
        """A list of whole numbers of at least `least`; empty where there is none. Raises SourceError for another."""
        return [self._checked(name, value, least) for value in self.items(name) or []]

    def depths(self, name: str) -> list[int]:
        """How many layers each stage has. Raises SourceError where all together are more than `MOST_LAYERS`."""
        found = self.sizes(name)
        if sum(found) > MOST_LAYERS:
            raise self.error(f"{name}: expected at most {MOST_LAYERS:,} layers in all stages, got {sum(found):,}")
        return found

    def sides(self, name: str, default: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns, the first two of a list. Raises SourceError for a list of one, or of what is no size."""
        found = self.sizes(name)
        if len(found) == 1:
            raise self.error(f"{name}: expected two whole numbers, got one")
        return (found[0], found[1]) if found else default

    def _checked(self, name: str, value: Any, least: int) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        most = MOST_LAYERS if name in _COUNTS_OF_LAYERS or name.endswith("layers") else LARGEST_SIZE
        if isinstance(value, bool) or not whole or not least <= value <= most:
            bound = "2^40" if most == LARGEST_SIZE else f"{most:,}"
            raise self.error(f"{name}: expected a whole number from {least} to {bound}, got {value!r:.60}")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false, also written as a number. Raises SourceError for anything else."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, (bool, int)):
            raise self.error(f"{name}: expected true or false, got {value!r:.60}")
        return bool(value)

    def number(self, name: str, default: float = 0.0) -> float:
        """A number below 10^100. Raises SourceError for anything else."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 10**100:
            raise self.error(f"{name}: expected a number, got {value!r:.60}")
        return float(value)

    def text(self, name: str, default: str = "") -> str:
        """A text. Raises SourceError for anything else."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(f"{name}: expected text, got {value!r:.60}")
        return value

    def items(self, name: str) -> list[Any] | None:
        """A list; None where there is none. Raises SourceError for anything else."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self.error(f"{name}: expected a list, got {value!r:.60}")
        return list(value)

    def table(self, name: str) -> Config | None:
        """A nested table such as `text_config`, None where there is none. Raises SourceError for anything else."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(f"{name}: expected a table, got {value!r:.60}")
        return Config(value, self.model_id)

    def layer_types(self) -> list[str] | None:
        """What `layer_types` names for each layer; names beyond the last layer are not looked at.

        None where there is none. Raises SourceError for a list that is shorter.
        """
        types = self.by_layer("layer_types")
        return None if types is None else [str(kind) for kind in types]

    def by_layer(self, name: str, *, empty_is_absent: bool = False) -> list[Any] | None:
        """What a list holds for each layer; what it holds beyond the last layer is not looked at.

        None where there is none. Raises SourceError for a list that is shorter.
        """
        values = self.items(name)
        if values is None or (empty_is_absent and not values):
            return None
        if len(values) < self.num_hidden_layers:
            raise self.error(f"{name} names {len(values)} layers, num_hidden_layers is {self.num_hidden_layers}")
        return values[: self.num_hidden_layers]

    def of_layer(self, index: int) -> Config | None:
        """What `per_layer_config` says of a layer, whose number may be written with zeros before it; None without one.

        A table that leaves the layer out gives an empty config.
        """
        by_layer = self.table("per_layer_config")
        if by_layer is None:
            return None
        names = [name for name in by_layer.values if str(name).isdecimal() and int(name) == index]
        return (by_layer.table(names[0]) if names else None) or Config({}, self.model_id)

    def part(self, name: str, defaults: Mapping[str, object]) -> Config:
        """A nested table, or an empty one where it is absent, with the defaults of its class."""
        return (self.table(name) or Config({}, self.model_id)).filled(defaults)

    def filled(self, defaults: Mapping[str, object]) -> Config:
        """This config with the defaults of its class where a key is absent or null."""
        given = {name: value for name, value in self.values.items() if value is not None}
        return Config({**defaults, **given}, self.model_id)

    def error(self, problem: str) -> SourceError:
        """The error to raise for a value, with the name of the model."""
        kind = f"{self.model_type} " if self.model_type else ""
        return SourceError(f"{self.model_id or 'model config'}: {kind}config: {problem}")

    # -- sizes that every family has -----------------------------------------------------------------------

    @property
    def hidden_size(self) -> int:
        """Values of a token between layers."""
        return self.size("hidden_size")

    @property
    def num_hidden_layers(self) -> int:
        """Layers, at least one."""
        return self.size("num_hidden_layers", least=1)

    @property
    def num_attention_heads(self) -> int:
        """Query heads of a layer."""
        return self.size("num_attention_heads")

    @property
    def vocab_size(self) -> int:
        """Rows of the token embedding."""
        return self.size("vocab_size")

    @property
    def intermediate_size(self) -> int:
        """Width inside a layer's MLP."""
        return self.size("intermediate_size")

    @property
    def num_labels(self) -> int:
        """Labels that a classifier chooses from: `num_labels`, or as many as `id2label` names; the library's two."""
        named = self.table("id2label")
        return self.size("num_labels", default=len(named.values) if named and named.values else 2)

    @property
    def num_key_value_heads(self) -> int:
        """Heads of keys and values, by default as many as query heads. Raises SourceError unless they divide these."""
        heads = self.num_attention_heads
        groups = self.size("num_key_value_heads", default=heads)
        if heads % groups:
            raise self.error(f"num_key_value_heads ({groups}) does not divide num_attention_heads ({heads})")
        return groups

    @property
    def head_dim(self) -> int:
        """Values of a head: `head_dim` where given, else hidden_size / num_attention_heads.

        Raises SourceError where that is no whole number.
        """
        if self.has("head_dim"):
            return self.size("head_dim")
        return self.hidden_size // self.heads_of(self.hidden_size)

    def heads_of(self, width: int) -> int:
        """The number of attention heads. Raises SourceError unless they divide `width`."""
        heads = self.num_attention_heads
        if width % heads:
            number, size = (self._given(name) for name in ("num_attention_heads", "hidden_size"))
            raise self.error(f"{number} ({heads}) does not divide {size} ({width})")
        return heads

    def _given(self, name: str) -> str:
        """The name under which the config has a size."""
        return next((alias for alias in _ALIASES[name] if self.has(alias)), name)


_TRAINS_IN = frozenset({"bf16", "fp16", "fp32"})


def stated_dtype(config: Mapping[str, object]) -> str | None:
    """`torch_dtype` (or `dtype`) of a config or of its text config, None where they say nothing.

    Raises UnknownNameError for a dtype that is not known.
    """
    inner = config.get("text_config")
    for table in (config, inner if isinstance(inner, Mapping) else {}):
        name = table.get("torch_dtype") or table.get("dtype")
        if isinstance(name, str) and name != "auto":
            return dtype(name.removeprefix("torch.")).name
    return None


def checkpoint_dtype(config: Mapping[str, object]) -> str:
    """The config's dtype; where it states none, fp32 for architectures from before bf16, else bf16 (assumed)."""
    return stated_dtype(config) or (
        "fp32" if has_fact(ANY, "published_in_fp32", str(config.get("model_type"))) else "bf16"
    )


def loaded_dtype(config: Mapping[str, object]) -> str:
    """The dtype in which training loads the weights; those of 8 bits and less are widened to bf16."""
    found = checkpoint_dtype(config)
    return found if found in _TRAINS_IN else "bf16"
