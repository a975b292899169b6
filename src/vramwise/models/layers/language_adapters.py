"""X-MOD's adapters: each sequence passes the one of its language."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.encoders import RowsOfLanguage
from vramwise.models.operations.simple import AddInPlace, Hold


def _adapter(b: BlockBuilder, x: Value, c: Config, language: str) -> Value:
    """Down to a narrow layer and up again."""
    narrow, module = x.width // c.size("adapter_reduction_factor", default=2), f"output.adapter_modules.{language}"
    h = b.linear(x, f"{module}.dense1", narrow, bias=True)
    h = b.activation(h, c.text("hidden_act", "gelu"), f"{module}.adapter_act_fn")
    return b.linear(h, f"{module}.dense2", x.width, bias=True, shard="row")


def language_adapters(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Norm, the language's two dense layers, dropout, residual; all sequences are of the default language."""
    residual = x
    if c.flag("adapter_layer_norm"):
        x = b.layer_norm(x, "output.adapter_layer_norm")
    elif c.flag("adapter_reuse_layer_norm", True):
        x = b.layer_norm(x, "output.LayerNorm")
    if c.flag("ln_before_adapter", True):
        residual = x
    languages = [str(language) for language in c.items("languages") or ["en_XX"]]
    taken = c.text("default_language", languages[0])
    if taken not in languages:
        raise c.error(f"default_language {taken!r:.60} is not one of languages")
    (x,) = b.op(RowsOfLanguage(num_languages=len(languages)), "", [x], [x.width])
    y = _adapter(b, x, c, taken)
    for language in languages:
        if language != taken:
            aside = BlockBuilder(b.name, b.layer, b.part)
            _adapter(aside, aside.value(x.width), c, language)
            y = b.unary(Hold(), y, "", [p for op in aside.ops for p in op.parameters])
    y = b.dropout(y, c.number("hidden_dropout_prob", 0.1))
    return b.op(AddInPlace(), "", [y, residual], [x.width])[0]
