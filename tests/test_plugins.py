"""Packages that add families, cards, frameworks, engines and cases: the example of docs/, and what is refused."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shown_commands import sessions
from vramwise import plugins
from vramwise.cli.main import main
from vramwise.errors import VramwiseError

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "examples" / "quartz-plugin"
PAGE = DOCS / "plugins.md"
QUARTZ = (
    "--model-type quartz --hidden-size 1024 --intermediate-size 4096 --num-hidden-layers 8 --num-attention-heads 16"
    " --num-key-value-heads 4 --vocab-size 32000"
)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A folder in which pip installed the example."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")  # a build leaves folders beside its source
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(source)], check=True, timeout=300)
    return folder / "site"


def run(target, *arguments):
    path = os.pathsep.join(filter(None, (str(target), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "vramwise", *arguments], capture_output=True, text=True, encoding="utf-8",
        timeout=300, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"estimate {QUARTZ} --task train --framework quartz-trainer --gpu q1", "Quartz Q1 96GB"),
        (f"estimate {QUARTZ} --task serve --engine quartz-server --gpu-memory-utilization 0.5 --gpu q1", "KV cache"),
        (f"estimate {QUARTZ} --task train --kernels quartz-kernels --gpu q1", "Quartz Q1 96GB"),
        ("accuracy plugin:quartz", "0.0"),
        ("gpus quartz", "quartz-q1-96gb"),
        ("schema", '"quartz-server"'),
    ],
)
def test_the_example_is_installed_and_answers(target, command, said):
    done = run(target, *command.split())
    assert done.stderr == ""
    assert done.returncode == 0
    assert said in done.stdout


def test_the_page_shows_how_it_is_listed(target):
    ((command, output),) = sessions(PAGE)
    assert run(target, *shlex.split(command)[1:]).stdout == output


def test_its_engine_takes_the_settings_of_the_one_it_is_like(target):
    done = run(
        target, "estimate", *QUARTZ.split(), *["--task", "serve", "--engine", "quartz-server", "--n-ctx", "4096"]
    )
    assert done.returncode == 2
    assert "--n-ctx: belongs to the engine llama.cpp; the engine is quartz-server" in done.stderr


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package with one entry point on the path: its name, and the text of its module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.installed.cache_clear()

    def put(package, text, name="sample"):
        module = package.replace("-", "_")
        monkeypatch.delitem(sys.modules, module, raising=False)
        (tmp_path / f"{module}.py").write_text(text, "utf-8")
        facts = tmp_path / f"{module}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8")
        (facts / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {module}:PLUGIN\n", "utf-8")

    yield put
    plugins.installed.cache_clear()


def family(model_type):
    return f"from vramwise.plugins import Plugin\nPLUGIN = Plugin(families={{'{model_type}': 'a.module'}})\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("PLUGIN = 3\n", "broken_one:PLUGIN is no vramwise.plugins.Plugin"),
        ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
    ],
)
def test_what_cannot_be_imported_is_named_and_left_out(text, why, install, capsys):
    install("broken-one", text)
    assert main(["--version"]) == 0
    said = capsys.readouterr()
    assert said.err == f"vramwise: plug-in sample (broken-one 1.0) is left out: {why}\n"
    assert "plug-in" not in said.out


def test_two_plug_ins_of_one_name_are_refused(install, capsys):
    install("package-one", family("one"))
    install("package-two", family("two"))
    assert main(["--version"]) == 1
    assert "two plug-ins are called sample: sample (package-one 1.0) and sample (package-two 1.0)" in (
        capsys.readouterr().err
    )


def test_two_families_of_one_type_are_refused(install):
    install("package-one", family("same"), name="one")
    install("package-two", family("same"), name="two")
    with pytest.raises(VramwiseError, match=r"two plug-ins add the model type same: one \(package-one 1.0\) and two"):
        plugins.families(())


def test_what_is_known_already_is_refused(install):
    install("package-one", family("llama"))
    with pytest.raises(VramwiseError, match="adds the model type llama, which vramwise has itself"):
        plugins.families(("llama",))


def test_a_plug_in_that_is_not_installed_is_named(capsys):
    assert main(["accuracy", "plugin:quarz"]) == 2
    assert 'unknown plug-in "quarz"' in capsys.readouterr().err


def test_what_is_known_looks_for_no_plug_ins():
    """The reader of packages' metadata is never imported for names that are known here."""
    code = "import sys, vramwise; vramwise.estimate({'model': 'gpt2', 'task': 'train', 'gpu': 't4'}); " \
           "vramwise.estimate({'model': 'gpt2', 'task': 'serve', 'gpu': 't4'}); sys.exit('importlib.metadata' in sys.modules)"  # fmt: skip # noqa: E501
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
