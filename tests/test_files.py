"""What a person names is opened without an endless wait; what is written is whole, or as it was before."""

from __future__ import annotations

import os
import stat

import pytest

from vramwise.errors import SourceError, clipped, printable
from vramwise.files import append_text, open_to_read, read_at_most, written


def test_a_file_is_read_up_to_a_bound(tmp_path):
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_at_most(tmp_path / "a", 4) == b"0123"
    with open_to_read(tmp_path / "a") as file:
        assert os.get_blocking(file.fileno())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gone", "No such file or directory"),
        ("folder", "Is a directory"),
        ("pipe", "is a named pipe, expected a file"),
        ("loop", "Too many levels of symbolic links"),
        ("to-pipe", "is a named pipe, expected a file"),
        ("zero\0byte", "is no file name"),
        ("a" * 5000, "File name too long"),
    ],
)
def test_what_is_no_file_is_refused_at_once(name, problem, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to-pipe").symlink_to("pipe")
    with pytest.raises(SourceError) as caught:
        open_to_read(f"{tmp_path}/{name}")
    assert str(caught.value).endswith(problem)
    assert "\n" not in str(caught.value)


def test_an_endless_device_is_refused():
    with pytest.raises(SourceError, match="/dev/zero: is a device, expected a file"):
        open_to_read("/dev/zero")


def test_a_pipe_of_the_shell_is_read():
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, b"text")
        assert read_at_most(f"/dev/fd/{read_end}", 4) == b"text"
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_written_file_keeps_the_mode_of_the_one_that_it_replaces(mode, tmp_path):
    out = tmp_path / "out"
    out.write_text("before")
    out.chmod(mode)
    with written(out) as file:
        file.write("after")
        assert out.read_text() == "before"
    assert out.read_text() == "after"
    assert stat.S_IMODE(out.stat().st_mode) == mode
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _fail_halfway(path, ending):
    with written(path) as file:
        file.write("half")
        raise ending


@pytest.mark.parametrize("ending", [OSError("No space left on device"), KeyboardInterrupt(), SystemExit(143)])
def test_what_fails_leaves_nothing_and_keeps_what_was_there(ending, tmp_path):
    (tmp_path / "out").write_text("before")
    for name in ("out", "new"):
        with pytest.raises(type(ending)):
            _fail_halfway(tmp_path / name, ending)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "before"


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    with written(tmp_path / "link", "wb") as file:
        file.write(b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"


@pytest.mark.parametrize("name", ["loop", "folder", "no folder/out", "zero\0byte"])
def test_where_nothing_can_be_written(name, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as caught, written(f"{tmp_path}/{name}"):  # noqa: PT011 - each has another number
        pass
    assert caught.value.filename == f"{tmp_path}/{name}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "loop"]


def test_lines_are_added(tmp_path):
    append_text(tmp_path / "a", "one\n")
    append_text(tmp_path / "a", "two\n")
    assert (tmp_path / "a").read_text() == "one\ntwo\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):  # noqa: PT011 - nobody reads it
        append_text(tmp_path / "pipe", "one\n")


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0)])
def test_no_character_that_steers_a_terminal_is_shown(code):
    shown = printable(f"a{chr(code)}b")
    assert shown in ("ab", "a b")
    assert clipped(f"a{chr(code)}b") == shown


def test_other_characters_are_shown():
    assert printable("Größe 千问 – × ±") == "Größe 千问 – × ±"
