"""A cluster that a file starts on a batch system: dask-jobqueue itself, over a stand-in for Slurm's commands.

`sbatch` here runs the script that it is given, so that real Dask workers come up, and keeps it to be looked at.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from made_jobs import job
from made_traces import packed

from vramwise import clusters
from vramwise.cli.main import main
from vramwise.errors import UsageError

pytest.importorskip("duckdb")
pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed here")

SLURM = """
jobs = 2

[slurm]
cores = 1
memory = "1GB"
walltime = "00:10:00"
queue = "gpu"
account = "lab"
interface = "lo"
job_extra_directives = ["--exclusive"]

[slurm.scheduler_options]
dashboard_address = ":0"
"""
SBATCH = """#!{python}
import pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
number = 100 + len(list(here.glob("*.script")))
text = pathlib.Path(sys.argv[-1]).read_text()
(here / f"{{number}}.script").write_text(text)
worker = subprocess.Popen(["sh", "-c", text], start_new_session=True, stdout=-3, stderr=-3)
(here / f"{{number}}.pid").write_text(str(worker.pid))
print(f"Submitted batch job {{number}}")
"""
SCANCEL = """#!{python}
import os, pathlib, signal, sys
pid = pathlib.Path(__file__).parent / f"{{sys.argv[-1]}}.pid"
try:
    os.killpg(int(pid.read_text()), signal.SIGTERM)
except (OSError, ValueError):
    pass
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """A folder with Slurm's two commands, the first in PATH; every worker that is left is ended."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text.format(python=sys.executable), "utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(clusters.__file__).parents[1]), *sys.path[1:]]))
    yield folder
    for pid in folder.glob("*.pid"):
        os.system(f"{folder / 'scancel'} {pid.stem}")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "slurm.toml"
    path.write_text(SLURM, "utf-8")
    return path


def test_slurm_jobs_read_the_traces_of_a_job(tmp_path, commands, file, capsys):
    traces = tmp_path / "traces"
    traces.mkdir()
    for rank, trace in enumerate(job(4, late={1: 900})):
        (traces / f"rank{rank}.json.gz").write_bytes(packed(trace))
    assert main(["profile", str(traces), "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)["job"]
    assert main(["profile", str(traces), "-o", str(tmp_path / "out"), "--dask", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["job"] == alone
    assert "4 traces read" in printed.err
    scripts = [each.read_text("utf-8") for each in sorted(commands.glob("*.script"))]
    assert len(scripts) == 2
    for line in (
        "#SBATCH -p gpu", "#SBATCH -A lab", "#SBATCH --cpus-per-task=1", "#SBATCH --mem=954M", "#SBATCH -t 00:10:00",
        "#SBATCH --exclusive",
    ):  # fmt: skip
        assert line in scripts[0].splitlines()
    assert "distributed.cli.dask_worker tcp://127.0.0.1:" in scripts[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1", "invalid partition specified: gpu"),
        (None, "No such file or directory: 'sbatch'"),
    ],
)
def test_a_batch_system_that_takes_no_jobs_is_one_line(tmp_path, commands, file, monkeypatch, answer, said):
    if answer is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        (commands / "sbatch").write_text(f"#!/bin/sh\n{answer}\n", "utf-8")
    with pytest.raises(UsageError) as problem, clusters.connected(str(file)):
        pass
    assert "slurm.toml: [slurm] does not start a cluster (" in str(problem.value)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("kind", "settings", "lines"),
    [
        ("pbs", 'queue = "gpu"\nresource_spec = "select=1:ncpus=2"\n', ["#PBS -q gpu", "#PBS -l select=1:ncpus=2"]),
        ("lsf", 'queue = "gpu"\nuse_stdin = true\nlsf_units = "mb"\n', ["#BSUB -q gpu", "#BSUB -n 2"]),
        ("sge", 'queue = "gpu"\n', ["#$ -q gpu"]),
    ],
)
def test_other_batch_systems_are_given_what_the_file_says(tmp_path, kind, settings, lines):
    """Without `jobs` nothing is submitted: the script is what there would be to submit."""
    path = tmp_path / "cluster.toml"
    common = 'cores = 2\nmemory = "2GB"\ninterface = "lo"\n'
    options = f'[{kind}.scheduler_options]\ndashboard_address = ":0"\n'
    path.write_text(f"[{kind}]\n{common}{settings}{options}", "utf-8")
    with clusters._started(str(path)) as cluster:
        script = cluster.job_script()
    for line in lines:
        assert line in script.splitlines()
    assert "distributed.cli.dask_worker tcp://127.0.0.1:" in script
