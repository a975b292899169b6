"""Functions of a model keep what they made, by its settings, and give it to a later run."""

from __future__ import annotations

from vramwise import memo
from vramwise.memo import kept_of, of_model, put_of

asked: list[object] = []


@of_model
def doubled(model: str, size: int, more: int = 0) -> int:
    asked.append((model, size, more))
    return 2 * size + more


def test_each_value_is_made_once_and_may_be_put_there():
    asked.clear()
    name = f"{__name__}.doubled"
    assert [doubled("a", 2), doubled("a", 2), doubled("a", 2, more=1), doubled("b", 2)] == [4, 4, 5, 4]
    assert len(asked) == 3
    kept = kept_of("a")[name]
    assert sorted(kept.values()) == [4, 5]
    read: list[str] = []

    def stored() -> dict[object, object]:
        read.append("c")
        return dict(kept)

    put_of("c", {name: stored})
    assert name not in kept_of("c")
    assert not read
    assert doubled("c", 2) == 4
    assert read == ["c"]
    assert len(asked) == 3


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(memo, "_MOST_MODELS", 3)
    monkeypatch.setattr(memo, "_MOST_OF_A_MODEL", 5)
    monkeypatch.setattr(memo, "_MOST_OF_ALL", 9)
    for model in "pqrstuv":
        for size in range(12):
            assert doubled(model, size) == 2 * size
    models = memo._kept[f"{__name__}.doubled"]
    assert len(models) <= 3
    assert all(len(values) <= 5 for values in models.values())
