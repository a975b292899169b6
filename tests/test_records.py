"""A record is a frozen dataclass to whoever reads, compares, copies or changes it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

import pytest

from vramwise.records import names_of, record, replace


@record
class Card:
    """A card."""

    name: str
    size: int = 80
    words: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    UNIT: ClassVar[str] = "GiB"

    def twice(self) -> int:
        return 2 * self.size


@record(kw_only=True)
class Known(Card):
    source: str
    size: int = field(default=80, hash=False)


@record(eq=False)
class Alone:
    value: int


@dataclass(frozen=True, slots=True)
class Dataclass(Card):
    ports: int = 1


@record
class OfDataclass(Dataclass):
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.ports)


def test_instances_are_made_compared_and_shown_as_a_dataclass_is():
    card = Card("h100")
    assert (card.name, card.size, card.words, card.twice(), card.UNIT) == ("h100", 80, {}, 160, "GiB")
    assert card == Card("h100", words={"a": 1})
    assert hash(card) == hash(Card("h100"))
    assert card not in (Card("h100", 81), ("h100", 80))
    assert repr(card) == "Card(name='h100', size=80)"
    assert Card("x").words is not Card("y").words
    assert not hasattr(card, "__dict__")
    with pytest.raises(TypeError, match=r"Card.__init__\(\) missing 1 required positional argument: 'name'"):
        Card()


def test_a_record_without_equality_equals_itself_alone():
    assert len({Alone(1), Alone(1)}) == 2


def test_a_field_may_be_compared_and_not_hashed():
    small, large = Known("h100", source="sheet"), Known("h100", size=94, source="sheet")
    assert small != large
    assert hash(small) == hash(large)


def test_fields_given_by_keyword_alone_are_not_given_by_place():
    with pytest.raises(TypeError):
        Known("h100", 80, {}, "sheet")


def test_dataclasses_know_its_fields():
    assert [(one.name, one.kw_only) for one in fields(Known)] == [
        ("name", False), ("size", False), ("words", False), ("source", True),
    ]  # fmt: skip
    changed = replace(Known("h100", source="sheet"), size=94)
    assert (type(changed), changed.name, changed.size, changed.source) == (Known, "h100", 94, "sheet")


def test_records_and_dataclasses_inherit_from_one_another():
    assert Dataclass("h100", ports=4) == Dataclass("h100", 80, {}, 4)
    assert OfDataclass("h100", ports=4).doubled == 8
    for copied in (replace, dataclasses.replace):
        assert copied(OfDataclass("h100"), ports=3).doubled == 6
        assert copied(Dataclass("h100", ports=2), size=3) == Dataclass("h100", 3, {}, 2)
    assert names_of(Dataclass) == ("name", "size", "words", "ports")
    assert names_of(OfDataclass) == ("name", "size", "words", "ports", "doubled")


def test_what_may_change_inherits_from_what_may():
    @record(frozen=False)
    class Base:
        count: int = 0

    @dataclass
    class More(Base):
        names: list[str] = field(default_factory=list)

    more = More()
    more.count += 1
    assert more == More(1, [])


def test_records_are_matched_copied_and_pickled():
    match Card("h100", 94):
        case Card(name, size):
            assert (name, size) == ("h100", 94)
    card = Card("h100", words={"a": 1})
    assert copy.deepcopy(card) == card == pickle.loads(pickle.dumps(card))


@record(kw_only=True, slots=False)
class Settings:
    size: int = 1
    names: list[str] = field(default_factory=list)
    model: str


def test_fields_that_all_come_by_their_names_are_checked_as_a_dataclass_checks_them():
    made = Settings(model="a", size=2)
    assert vars(made) == {"size": 2, "names": [], "model": "a"}
    assert list(vars(made)) == ["size", "names", "model"]
    assert Settings(model="a").names is not Settings(model="a").names
    assert replace(made, size=3) == Settings(model="a", size=3) == dataclasses.replace(made, size=3)
    for wrong in ({}, {"model": "a", "sise": 2}):
        with pytest.raises(TypeError, match=r"Settings (needs model|has no sise)"):
            Settings(**wrong)
    with pytest.raises(TypeError):
        Settings("a")
