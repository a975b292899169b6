"""Pickles of plain data are read as Python reads them; nothing else is read at all."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from collections import OrderedDict
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshots import pickled, small_run

from vramwise.measure.plain_pickle import PlainPickleError, looks_like_pickle, plain_from_pickle

KEYS = st.one_of(st.text(max_size=5), st.integers(-3, 3), st.booleans(), st.none())
PLAIN = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**400), 2**400), st.floats(allow_nan=False), st.text(max_size=300),
        st.binary(max_size=300),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.lists(inner, max_size=5).map(tuple), st.dictionaries(KEYS, inner, max_size=5)
    ),
    max_leaves=30,
)  # fmt: skip


@given(PLAIN, st.sampled_from([3, 4, 5]))
@settings(max_examples=60)
def test_plain_data_is_read_as_python_reads_it(value, protocol):
    assert plain_from_pickle(pickle.dumps(value, protocol)) == value


def test_a_snapshot_of_an_old_protocol_is_read():
    value = small_run().snapshot()
    assert plain_from_pickle(pickled(value, protocol=2)) == value


@pytest.mark.parametrize("end", range(0, 700, 23))
def test_a_truncated_pickle_is_one_sentence(end):
    data = pickled(small_run().snapshot())
    with pytest.raises(PlainPickleError, match=r"ends early|damaged"):
        plain_from_pickle(data[: len(data) * end // 700])


class Hostile:
    def __reduce__(self):
        return os.system, ("touch /tmp/vramwise-was-here",)


@pytest.mark.parametrize(
    "value",
    [Hostile(), {"segments": [Hostile()]}, OrderedDict(a=1), date(2026, 1, 1), {1, 2}, print, range(3), 1j],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_what_is_not_plain_is_refused(value, protocol, tmp_path):
    with pytest.raises(PlainPickleError, match="refused: the pickle holds more than plain data"):
        plain_from_pickle(pickle.dumps(value, protocol))


def test_nothing_of_a_hostile_pickle_runs(tmp_path):
    trap = tmp_path / "ran"
    hostile = pickle.PROTO + b"\x04" + b"cposix\nsystem\n(V" + f"touch {trap}".encode() + b"\ntR."
    with pytest.raises(PlainPickleError, match="GLOBAL"):
        plain_from_pickle(hostile)
    assert not trap.exists()


def test_a_huge_memo_index_reserves_nothing():
    assert plain_from_pickle(b"\x80\x04N" + b"r" + struct.pack("<I", 2**32 - 1) + b".") is None


def test_a_huge_length_reserves_nothing():
    with pytest.raises(PlainPickleError, match="ends early"):
        plain_from_pickle(b"\x80\x04" + b"\x8d" + struct.pack("<Q", 2**62) + b"abc")


def test_a_nested_key_is_refused_before_it_is_hashed():
    deep = b"\x80\x04}" + b")" + b"\x85" * 200_000 + b"Ns."
    with pytest.raises(PlainPickleError, match="damaged"):
        plain_from_pickle(deep)


def test_deep_lists_do_not_exhaust_the_stack():
    depth = 200_000
    found = plain_from_pickle(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b".")
    assert isinstance(found, list)
    while found:
        found = found.pop()


NONSENSE = ("", "2e", "28 2e", "4e 4e 2e", "61 2e", "4e 73 2e", "68 09 2e", "ff", "28 94 2e", "7d 28 4e 75 2e")


@pytest.mark.parametrize("code", NONSENSE)
def test_nonsense_is_one_sentence(code):
    with pytest.raises(PlainPickleError):
        plain_from_pickle(b"\x80\x04" + bytes.fromhex(code))


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_any_bytes_give_a_value_or_one_sentence(data):
    with contextlib.suppress(PlainPickleError):
        plain_from_pickle(b"\x80\x04" + data)


def test_binary_pickles_are_told_from_text():
    assert looks_like_pickle(pickle.dumps({}, 2))
    assert not looks_like_pickle(b"Traceback (most recent call last)")
    assert not looks_like_pickle(b"")


def test_a_long_file_may_build_more_than_a_short_one(monkeypatch):
    monkeypatch.setattr("vramwise.measure.plain_pickle.FREE_OBJECTS", 10)
    rows = [[place, "frames"] for place in range(40)]
    assert plain_from_pickle(pickle.dumps(rows, 4)) == rows


@pytest.mark.parametrize("code", [b"]", b"}", b")", b"N\x94", b"]\x94"])
def test_what_is_built_is_bounded_by_the_size_of_the_file(code):
    """Five million empty lists are five megabytes of a file, and 364 of memory."""
    with pytest.raises(PlainPickleError, match=r"for its size|does not end in one value"):
        plain_from_pickle(b"\x80\x04" + code * 2_000_000 + b".")
