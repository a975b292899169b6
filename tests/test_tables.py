"""The package's CSV tables: each is read whole, and a row that lost a cell is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from vramwise.tables import records, rows_of, table

PACKAGE = Path(__file__).parents[1] / "src" / "vramwise"
TABLES = sorted(PACKAGE.rglob("*.csv"))


@dataclass(frozen=True)
class Card:
    name: str
    gigabytes: float
    cores: int | None


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_table_of_the_package_is_whole(path):
    rows = rows_of(path)
    assert rows
    assert len({tuple(row) for row in rows}) == 1
    assert all(name for name in rows[0])


def written(folder, text):
    (folder / "cards.csv").write_text(text, "utf-8")
    return str(folder / "module.py")


def test_cells_are_read_as_what_they_are(tmp_path):
    beside = written(tmp_path, 'name,gigabytes,cores,words\n"one, two",1.5,,a b\n')
    (row,) = table(beside, "cards")
    assert (row["name"], row.number("gigabytes"), row.whole_or_none("cores")) == ("one, two", 1.5, None)
    assert row.words("words") == ("a", "b")
    with pytest.raises(ValueError, match="invalid literal"):
        row.whole("cores")


def test_rows_become_records(tmp_path):
    beside = written(tmp_path, "name,cores,gigabytes,more\none,8,2,x\n")
    (card,) = records(Card, table(beside, "cards"))
    assert card == Card("one", 2.0, 8)
    assert isinstance(card.gigabytes, float)


def test_a_row_that_lost_a_cell_is_refused(tmp_path):
    beside = written(tmp_path, "name,cores\none,8\ntwo\n")
    with pytest.raises(ValueError, match=r"cards\.csv: row 3 has other cells"):
        table(beside, "cards")
