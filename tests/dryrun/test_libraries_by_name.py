"""`dry-run` of models of timm and sentence-transformers by name: whose a name is, what runs, what is refused."""

from __future__ import annotations

import importlib
import json
from importlib.util import find_spec

import pytest

from vramwise.cli.main import main
from vramwise.dryrun.embedder import pairs_of
from vramwise.dryrun.outcome import workspace_bytes
from vramwise.dryrun.scenario import dry_runs
from vramwise.dryrun.whose import embedder_config, found_by, whose
from vramwise.errors import UsageError, VramwiseError
from vramwise.estimation import estimate
from vramwise.hardware import find_gpu
from vramwise.scenario import Scenario

MIB = 2**20
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]
BERT = {"model_type": "bert", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 3,
        "intermediate_size": 512, "vocab_size": 30522, "max_position_embeddings": 512}  # fmt: skip


def imports(name):
    """Why a library is not here, empty where it is: timm needs a torchvision that fits torch."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return "needs torch and transformers"
    if find_spec(name) is None:
        return f"needs {name}"
    try:
        importlib.import_module(name)
    except (ImportError, RuntimeError) as problem:
        return f"{name} does not import: {problem}"
    return ""


of_timm = pytest.mark.skipif(bool(imports("timm")), reason=imports("timm"))
of_sentences = pytest.mark.skipif(bool(imports("sentence_transformers")), reason=imports("sentence_transformers"))


def asked(model, task="train", library="auto", **settings):
    own = {task: settings} if settings else {}
    return Scenario.from_dict({"model": model, "task": task, "library": library, **own})


@pytest.fixture
def folder(tmp_path):
    """An embedder as sentence-transformers saves one, without weights."""
    files = {
        "config.json": BERT, "modules.json": MODULES, "sentence_bert_config.json": {"max_seq_length": 96},
        "1_Pooling/config.json": {"word_embedding_dimension": 128, "pooling_mode_mean_tokens": True},
        "2_Dense/config.json": {"in_features": 128, "out_features": 32, "bias": True,
                                "activation_function": "torch.nn.modules.activation.Tanh"},
    }  # fmt: skip
    for name, content in files.items():
        place = tmp_path / "embedder" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content), "utf-8")
    return str(tmp_path / "embedder")


@pytest.mark.parametrize(
    ("model", "library", "wanted"),
    [
        ("timm/resnet50.a1_in1k", "auto", "timm"),
        ("hf-hub:timm/resnet50.a1_in1k", "auto", "timm"),
        ("resnet50", "timm", "timm"),
        ("sentence-transformers/all-MiniLM-L6-v2", "auto", "sentence-transformers"),
        ("sentence-transformers/all-MiniLM-L6-v2", "transformers", "transformers"),
        ("bert-base-uncased", "sentence-transformers", "sentence-transformers"),
        ("bert-base-uncased", "auto", "transformers"),
        ("sdxl", "auto", "diffusers"),
    ],
)
def test_whose_a_name_is(model, library, wanted):
    scenario = asked(model, library=library)
    assert whose(scenario, found_by(scenario)) == wanted


def test_a_folder_with_modules_is_an_embedder_with_all_of_them(folder):
    scenario = asked(folder)
    found = found_by(scenario)
    assert whose(scenario, found) == "sentence-transformers"
    files = embedder_config(found, scenario)["files"]
    assert set(files) == {"modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/config.json"}


@pytest.mark.parametrize("name", ["timm", "sentence_transformers"])
def test_a_library_that_is_not_here_is_one_sentence(monkeypatch, capsys, name):
    monkeypatch.setattr("vramwise.measure.libraries.find_spec", lambda one: None if one == name else find_spec(one))
    model = {"timm": "timm/resnet50", "sentence_transformers": "sentence-transformers/all-MiniLM-L6-v2"}[name]
    assert main(["dry-run", model, "--task", "load"]) == 1
    said = capsys.readouterr().err.strip()
    assert said.endswith(f"this run needs {name}, which is not installed: pip install "
                         f"'vramwise[{name.replace('_', '-')}]'")  # fmt: skip
    assert "\n" not in said


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (asked("timm/resnet50", sequence_length=128), "--sequence-length is not something that dry-run asks"),
        (asked("timm/resnet50", method="lora"), "--method full or freeze: adapters are a script's"),
        (asked("timm/resnet50", "serve"), "--task train, generate, load of a model of timm"),
        (asked("bert-base-uncased", library="sentence-transformers", packing=True), "--packing is not something"),
    ],
)
def test_what_says_nothing_of_such_a_model_is_refused(monkeypatch, scenario, said):
    monkeypatch.setattr("vramwise.dryrun.whose.need", lambda _: None)
    with pytest.raises(UsageError, match=said):
        list(dry_runs([scenario]))


def test_texts_of_pairs_are_sequences():
    assert [pairs_of(sequences) for sequences in (1, 2, 32)] == [1, 1, 16]
    with pytest.raises(UsageError, match="a pair of texts is two sequences"):
        pairs_of(33)


def test_the_estimate_of_an_embedder_has_no_head():
    found = estimate("bert-base-uncased", task="train", library="sentence-transformers", sequence_length=128)
    assert found.scenario["train"]["head"] == "none"
    asked_for = estimate("bert-base-uncased", task="train", head="none", sequence_length=128)
    assert found.phases == asked_for.phases


@of_timm
@pytest.mark.usefixtures("warm")
def test_a_classifier_of_timm_holds_what_its_parameters_say():
    settings = {"precision": "fp32", "micro_batch_size": 1, "optimizer_impl": "fused"}
    ((result, estimated),) = dry_runs([asked("timm/vit_tiny_patch16_224.augreg_in21k", **settings)])
    assert estimated is None
    count = result.model.num_parameters
    assert count == 5_717_416 + 21_843 * 193 - 1_000 * 193  # of ImageNet-21k's labels: 192 features and a bias
    held = {phase.name: phase.bytes for phase in result.phases}
    context = 3 * 160 * MIB  # more than any context
    assert 4 * count <= held["load"] <= 4 * count + context
    states = held["optimizer step"] - held["load"]
    work = 2 * workspace_bytes(find_gpu("h100").gpu)
    assert 12 * count <= states < 12 * count + work + 2 * MIB
    assert any("VisionTransformer itself ran" in note for note in result.notes)


@of_timm
@pytest.mark.usefixtures("warm")
def test_images_of_timm_have_the_size_that_is_asked_for():
    small, large = (
        asked("resnet18", "generate", library="timm", batch_size=8, dtype="bf16", image_size=size)
        for size in ("224x224", "448x448")
    )
    (first, _), (second, _) = dry_runs([small, large])
    stem = 8 * 64 * 112 * 112 * 2  # bytes of the first convolution's output
    grown = second.quantities["peak_allocated"].expected - first.quantities["peak_allocated"].expected
    assert 2 * 3 * stem <= grown + MIB  # convolution, norm and the activation in place: two of them, and the images
    assert any("what cuDNN takes for convolutions" in note for note in first.notes)


@of_timm
@pytest.mark.usefixtures("warm")
def test_a_name_that_timm_does_not_have_is_one_line():
    with pytest.raises(VramwiseError, match=r'has no model "resnet5": did you mean resnet50\?'):
        list(dry_runs([asked("resnet5", "load", library="timm")]))


@of_sentences
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_a_step_over_pairs_is_the_estimates_of_their_texts(precision):
    settings = {"precision": precision, "micro_batch_size": 32, "sequence_length": 128, "optimizer_impl": "fused"}
    ((result, estimated),) = dry_runs([asked("sentence-transformers/all-MiniLM-L6-v2", **settings)])
    assert result.model.num_parameters == 22_713_216
    assert any("16 pairs of texts of 128 tokens" in note for note in result.notes)
    mine, theirs = ({phase.name: tensors_of(phase) for phase in one.phases} for one in (result, estimated))
    # autocast forgets its copies of weights when a pass ends, and the second text's pass makes its own
    again = 0 if precision == "fp32" else 2 * 6 * (4 * 384 * 384 + 2 * 384 * 1536)
    for name, more in {"load": 0, "forward": again, "backward: layers": again, "optimizer step": 0}.items():
        assert theirs[name] + more == pytest.approx(mine[name], rel=0.02), name


def tensors_of(phase):
    beside = ("library workspace", "CUDA context", "unsplit remainders")
    return sum(node.bytes for node in phase.components.children if node.name not in beside)


@of_sentences
@pytest.mark.usefixtures("warm")
def test_an_embedders_own_files_make_it(folder):
    ((result, _),) = dry_runs([asked(folder, "generate", batch_size=4)])
    assert any("4 texts of 96 tokens" in note for note in result.notes)
    dense = 128 * 32 + 32
    ((plain, _),) = dry_runs([asked(BERT, "load", library="sentence-transformers")])
    assert result.model.num_parameters == plain.model.num_parameters + dense
