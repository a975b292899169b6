"""Headers of GGUF files: what the package gguf writes is read back, and broken files cost one line."""

from __future__ import annotations

import random
import struct

import pytest

from vramwise.errors import SourceError, VramwiseError
from vramwise.estimation import estimate
from vramwise.formats.gguf_file import read_gguf
from vramwise.sources import resolve

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")

HIDDEN, INNER, VOCABULARY, LAYERS = 512, 1024, 6000, 2
MIX = {
    "attn_q": ((HIDDEN, HIDDEN), "IQ4_XS"), "attn_k": ((128, HIDDEN), "Q5_K"), "attn_v": ((128, HIDDEN), "Q8_0"),
    "attn_output": ((HIDDEN, HIDDEN), "Q4_K"), "ffn_gate": ((INNER, HIDDEN), "Q3_K"),
    "ffn_up": ((INNER, HIDDEN), "Q2_K"), "ffn_down": ((HIDDEN, INNER), "Q6_K"), "attn_norm": ((HIDDEN,), "F32"),
    "ffn_norm": ((HIDDEN,), "F32"),
}  # fmt: skip


def write(path, arch="llama", name="Tiny", *, tied=False):
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(name)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_context_length(4096)
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    _add(writer, "token_embd.weight", (VOCABULARY, HIDDEN), "Q4_K")
    if not tied:
        _add(writer, "output.weight", (VOCABULARY, HIDDEN), "Q6_K")
    _add(writer, "output_norm.weight", (HIDDEN,), "F32")
    for layer in range(LAYERS):
        for short, (shape, kind) in MIX.items():
            _add(writer, f"blk.{layer}.{short}.weight", shape, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def _add(writer, name, shape, kind):
    if kind == "F32":
        writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
        return
    quantized = gguf.GGMLQuantizationType[kind]
    raw = np.zeros(gguf.quant_shape_to_byte_shape(shape, quantized), dtype=np.uint8)
    writer.add_tensor(name, raw, raw_shape=raw.shape, raw_dtype=quantized)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_tensors_are_those_that_gguf_reads(path):
    ours = {tensor.name: (tensor.bytes, tensor.type) for tensor in read_gguf(path).tensors}
    theirs = {t.name: (int(t.n_bytes), t.tensor_type.name) for t in gguf.GGUFReader(path).tensors}
    assert ours == theirs


@pytest.mark.parametrize("values", [["a"], list("abc"), [1, 2], [0.5], [True, False], [["x"], ["y", "z"]], [1] * 4096])
def test_short_lists_are_kept(tmp_path, values):
    assert with_list(tmp_path / "a.gguf", values).metadata["list"] == values


@pytest.mark.parametrize("values", [["a"] * 4097, [7] * 5000])
def test_of_long_lists_the_length_stays(tmp_path, values):
    assert with_list(tmp_path / "a.gguf", values).metadata["list"] == len(values)


def with_list(path, values):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("list", values)
    writer.add_name("after")
    return finished(writer, path)


def test_an_empty_tensor_takes_no_bytes(tmp_path):
    """ggml/src/gguf.cpp refuses dimensions below zero alone."""
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("none", np.zeros((0, 4), dtype=np.float32))
    header = finished(writer, tmp_path / "a.gguf")
    assert {tensor.name: tensor.bytes for tensor in header.tensors} == {"none": 0, "some": 16}


def finished(writer, path):
    writer.add_tensor("some", np.zeros((1, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf(str(path))


def test_the_header_is_the_configuration(path):
    config = resolve(path).config
    wanted = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
              "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
              "max_position_embeddings": 4096, "tie_word_embeddings": False}  # fmt: skip
    assert {key: config[key] for key in wanted} == wanted


def test_an_estimate_takes_the_sizes_of_the_file(path):
    result = estimate({"model": path, "task": "serve", "gpu": "rtx-4090", "serve": {"engine": "llama.cpp"}})
    sizes = {name: int(result.quantities[name].expected) for name in ("weights", "weights_gpu", "weights_host")}
    embedding = VOCABULARY * HIDDEN * 144 // 256
    assert sizes["weights"] == read_gguf(path).tensor_bytes
    assert sizes["weights_host"] == embedding
    on_device = [tensor for tensor in read_gguf(path).tensors if tensor.name != "token_embd.weight"]
    assert sizes["weights_gpu"] >= sizes["weights"] - embedding
    assert sizes["weights_gpu"] <= sizes["weights"] - embedding + len(on_device) * (144 + 127)  # rows and beginnings
    assert any("file's header" in note for note in result.notes)


def test_a_tied_embedding_lies_on_both_sides(tmp_path):
    tied = write(tmp_path / "tied.gguf", tied=True)
    result = estimate({"model": tied, "task": "serve", "gpu": "rtx-4090", "serve": {"engine": "llama.cpp"}})
    assert result.quantities["weights_gpu"].expected == result.quantities["weights"].expected


def test_parts_of_a_split_file_are_added(tmp_path, path):
    for part in (1, 2):
        write(tmp_path / f"tiny-{part:05}-of-00002.gguf")
    header = read_gguf(str(tmp_path / "tiny-00001-of-00002.gguf"))
    assert header.tensor_bytes == 2 * read_gguf(path).tensor_bytes
    (tmp_path / "tiny-00002-of-00002.gguf").unlink()
    with pytest.raises(SourceError, match="00002-of-00002"):
        read_gguf(str(tmp_path / "tiny-00001-of-00002.gguf"))


def test_an_architecture_that_is_not_described_is_found_by_its_name(tmp_path):
    named = write(tmp_path / "named.gguf", arch="falcon-h1", name="Llama 3.1 8B")
    assert "Llama-3.1-8B" in resolve(named).id
    other = write(tmp_path / "other.gguf", arch="falcon-h1", name="nobody knows me")
    with pytest.raises(VramwiseError, match="falcon-h1"):
        resolve(other)


def _header(*pieces):
    return b"GGUF" + b"".join(pieces)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"GGUF", _header(struct.pack("<IQQ", 3, 0, 0)), b"PK\x03\x04" * 10,
        _header(struct.pack("<IQQ", 1, 0, 0)),
        _header(struct.pack("<IQQ", 3, 2**63, 0)),
        _header(struct.pack("<IQQ", 3, 0, 2**40)),
        _header(struct.pack("<IQQ", 3, 0, 1), struct.pack("<Q", 2**62)),
        _header(struct.pack("<IQQ", 3, 0, 1), struct.pack("<Q", 1), b"a", struct.pack("<I", 99)),
        _header(struct.pack("<IQQ", 3, 0, 1), struct.pack("<Q", 1), b"a", struct.pack("<IIQ", 9, 10, 2**61)),
        _header(struct.pack("<IQQ", 3, 0, 1), struct.pack("<Q", 1), b"a", struct.pack("<IIQ", 9, 8, 2**61)),
        _header(struct.pack("<IQQ", 3, 1, 0), struct.pack("<Q", 1), b"t", struct.pack("<I", 1000)),
        _header(struct.pack("<IQQ", 3, 1, 0), struct.pack("<Q", 1), b"t", struct.pack("<IQIQ", 1, 2**62, 0, 2**60)),
    ],
)  # fmt: skip
def test_broken_files_cost_one_line(tmp_path, data):
    path = tmp_path / "broken.gguf"
    path.write_bytes(data)
    with pytest.raises(VramwiseError) as problem:
        resolve(str(path))
    assert "\n" not in str(problem.value)


def test_damaged_headers_never_break_the_reader(tmp_path, path):
    source = random.Random(11)
    with open(path, "rb") as file:
        whole = file.read(200_000)
    target = tmp_path / "damaged.gguf"
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(source.randrange(1, 6)):
            data[source.randrange(400)] = source.randrange(256)
        target.write_bytes(bytes(data[: source.randrange(4, len(data))]))
        with pytest.raises(VramwiseError):  # cut files at least
            read_gguf(str(target))
