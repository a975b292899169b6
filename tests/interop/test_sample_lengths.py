"""`vramwise lengths`: columns that trainers read, counted with real tokenizers, into a scenario that uses them."""

from __future__ import annotations

import json
import random
import statistics
import tomllib
import tracemalloc

import pytest

import vramwise
from vramwise.cli.main import main
from vramwise.errors import ScenarioError, UsageError
from vramwise.interop.samples.counts import Counts
from vramwise.interop.samples.rows import sample_of

tokenizers = pytest.importorskip("tokenizers")
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}"


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with a tokenizer of words."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "one": 1}, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def data(tmp_path):
    def write(*rows):
        path = tmp_path / "data.jsonl"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return str(path)

    return write


def counted(capsys, *words):
    assert main(["lengths", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("row", "kind", "text"),
    [
        ({"text": "a b"}, "text", "a b"),
        ({"prompt": "a", "completion": "b c"}, "prompt + completion", "a\nb c"),
        ({"instruction": "a", "input": "", "output": "b"}, "instruction + input + output", "a\nb"),
        ({"instruction": "a", "output": "b"}, "instruction + output", "a\nb"),
        ({"question": "a", "answer": "b"}, "question + answer", "a\nb"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "messages", "a\nb"),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, "conversations", "a\nb"),
        ({"messages": [{"content": [{"type": "text", "text": "a"}, {"type": "image"}]}]}, "messages", "a"),
        ({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]},
         "prompt + completion", "a\nb"),
    ],
)  # fmt: skip
def test_columns_that_trainers_read(row, kind, text):
    sample = sample_of(row)
    assert (sample.kind, sample.plain) == (kind, text)


def test_turns_keep_their_roles():
    turns = sample_of({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}).turns
    assert turns == (("user", "a"), ("assistant", "b"))


def test_unknown_columns_are_named():
    with pytest.raises(UsageError, match=r"no column is known \(foo, bar\): --column NAME"):
        sample_of({"foo": 1, "bar": 2})
    assert sample_of({"foo": "a"}, "foo").plain == "a"
    with pytest.raises(UsageError, match="holds no text"):
        sample_of({"text": 3})


def test_lengths_become_a_scenario(tokenizer, data, tmp_path, capsys):
    path = data(*({"text": "one " * n} for n in (10, 20, 30, 40, 100)))
    found = counted(capsys, path, "--tokenizer", str(tokenizer / "tokenizer.json"))
    assert found["sample_lengths"] == {"mean": 40, "spread": 32, "maximum": 100}
    assert (found["samples"], found["tokens"], found["percentiles"]["p50"]) == (5, 200, 30)
    out = tmp_path / "lengths.toml"
    assert main(["lengths", path, "--tokenizer", str(tokenizer / "tokenizer.json"), "-o", str(out)]) == 0
    assert "sample_lengths = { mean = 40, spread = 32, maximum = 100 }" in capsys.readouterr().out
    scenario = {"model": "gpt2", "task": "train", **tomllib.loads(out.read_text())}
    others = ({**scenario, "train": {"sequence_length": 100}}, {**scenario, "train": {}})
    peaks = [vramwise.estimate(one).quantities["peak_allocated"].expected for one in (scenario, *others)]
    assert peaks[0] == peaks[1] < peaks[2]


def test_samples_of_one_length_are_fixed(tokenizer, data, capsys):
    path = data({"text": "one one"}, {"text": "one two"})
    found = counted(capsys, path, "--tokenizer", str(tokenizer / "tokenizer.json"))
    assert found["sample_lengths"] == {"fixed": 2}
    keys = {"task": "train", "method": "lora", "sequence_length": 512, "gpu": "l40s"}
    free, fixed = (
        vramwise.estimate("gpt2", **keys, **more).quantities["peak_reserved"]
        for more in ({}, {"sample_lengths": {"fixed": 512}})
    )
    assert fixed.high < free.high


def test_mean_and_spread_say_how_much_is_reserved_and_how_long_a_step_takes():
    keys = {"task": "train", "method": "lora", "gpu": "l40s", "micro_batch_size": 4, "framework": "llamafactory"}
    narrow, wide, unsaid, equal = (
        vramwise.estimate("llama-3.2-1b", **keys, sequence_length=1024, sample_lengths=lengths).quantities
        for lengths in ({"mean": 300, "spread": 20, "maximum": 1024}, {"mean": 300, "spread": 400, "maximum": 1024},
                        None, {"fixed": 1024})
    )  # fmt: skip
    assert narrow["peak_allocated"].expected == equal["peak_allocated"].expected  # the longest row is in each
    assert equal["peak_reserved"].expected < narrow["peak_reserved"].expected
    assert len({one["peak_reserved"].expected for one in (narrow, wide, unsaid)}) == 3
    steps = [one["step_time_s"].expected for one in (narrow, wide, unsaid)]
    assert steps == sorted(steps)
    assert steps[0] < 0.5 * steps[2]
    assert unsaid["step_time_s"] == equal["step_time_s"]


@pytest.mark.parametrize("lengths", [{"mean": 3}, {"fixed": 3, "maximum": 4}, {"mean": 9, "maximum": 4}])
def test_lengths_that_contradict_themselves_are_refused(lengths):
    with pytest.raises(ScenarioError, match=r"train\.sample_lengths"):
        vramwise.estimate("gpt2", task="train", sample_lengths=lengths)


def test_a_chat_template_counts_its_marks(tokenizer, data, capsys):
    transformers = pytest.importorskip("transformers")
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer / "tokenizer.json"), chat_template=TEMPLATE)
    own.save_pretrained(tokenizer)
    path = data({"messages": [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]})
    with_marks = counted(capsys, path, "--tokenizer", str(tokenizer))
    without = counted(capsys, path, "--tokenizer", str(tokenizer / "tokenizer.json"))
    assert (with_marks["tokens"], without["tokens"]) == (5 - 1, 3)


def test_broken_lines_are_counted_and_said(tokenizer, data, capsys):
    path = data({"text": "one"}, "{", "[1]", {"other": 1}, '{"text": null}')
    assert main(["lengths", path, "--tokenizer", str(tokenizer / "tokenizer.json")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 lines were left out: line 2:" in said
    assert "line 4: no column is known (other)" in said
    assert "2 samples" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing.jsonl", "--tokenizer", "T"], 4, "nothing.jsonl: No such file"),
        (["D", "--tokenizer", "nowhere.json"], 4, "nowhere.json"),
        (["D", "--tokenizer", "T", "--limit", "0"], 2, "--limit: expected a whole number"),
        (["D"], 2, "--tokenizer"),
    ],
)
def test_what_is_wrong_is_one_line(tokenizer, data, capsys, words, code, said, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    known = {"D": data({"text": "one"}), "T": str(tokenizer / "tokenizer.json")}
    assert main(["lengths", *(known.get(word, word) for word in words)]) == code
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.startswith("vramwise: ")


def test_a_hub_out_of_reach_is_asked_once(data, monkeypatch, capsys, tmp_path):
    """Its own client would try five times a file, half a minute long; what is in the cache is taken without asking."""
    transformers = pytest.importorskip("transformers")
    asked = []

    def loaded(name, **settings):
        asked.append(settings["local_files_only"])
        raise OSError("not cached")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", loaded)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    assert main(["lengths", data({"text": "one"}), "--tokenizer", "some/model"]) == 4
    assert asked == [True]
    complaint = capsys.readouterr().err
    assert (
        "it is not in this machine's cache, and there is no way to the Hub (127.0.0.1:9 cannot be reached" in complaint
    )


def test_a_file_without_samples_and_a_broken_tokenizer(tokenizer, data, tmp_path, capsys):
    assert main(["lengths", data("{", "x"), "--tokenizer", str(tokenizer / "tokenizer.json")]) == 4
    assert "holds no sample: 2 lines could not be read" in capsys.readouterr().err
    (tmp_path / "tokenizer.json").write_text('{"model": "\x1b[31m"}')
    assert main(["lengths", data({"text": "one"}), "--tokenizer", str(tmp_path / "tokenizer.json")]) == 4
    assert "\x1b" not in (complaint := capsys.readouterr().err)
    assert complaint.count("\n") == 1


def test_counts_are_those_of_the_standard_library():
    draw = random.Random(3)
    lengths = [draw.randrange(1, 900) for _ in range(2000)]
    counts = Counts()
    counts.add(("text", length) for length in lengths)
    assert counts.mean == round(statistics.mean(lengths))
    assert counts.spread == round(statistics.pstdev(lengths))
    assert counts.percentiles()["p90"] == sorted(lengths)[1799]


def test_a_large_file_takes_little_memory(tokenizer, tmp_path, capsys):
    path = tmp_path / "large.jsonl"
    row = json.dumps({"text": "one " * 500}) + "\n"
    path.write_text(row * 5_000)
    main(["lengths", str(path), "--tokenizer", str(tokenizer / "tokenizer.json"), "--limit", "64"])
    tracemalloc.start()
    assert main(["lengths", str(path), "--tokenizer", str(tokenizer / "tokenizer.json")]) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 2
    assert "5,000 samples" in capsys.readouterr().out


def test_missing_data_is_said_before_a_tokenizer_is_fetched(capsys, monkeypatch):
    monkeypatch.setattr("vramwise.cli.lengths.tokenizer_named", lambda name: pytest.fail(name))
    assert main(["lengths", "nowhere.jsonl", "--tokenizer", "gpt2"]) == 4
    assert "nowhere.jsonl: No such file" in capsys.readouterr().err
