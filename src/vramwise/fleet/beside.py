"""What stands in the server beside the GPUs' own metrics: counters of tokens and steps, and the commands of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from vramwise.errors import UsageError
from vramwise.fleet.exporters import EXPORTERS
from vramwise.fleet.labels import JobLabels, check_label, job_labels
from vramwise.fleet.prometheus import Prometheus
from vramwise.fleet.windows import STEPS, TOKENS, Asked, when

COMMAND_METRICS: Final = ("kube_pod_annotations", "kube_pod_labels")
"""kube-state-metrics (docs/metrics/workload/pod-metrics.md); which annotations it exports is its own setting."""


class Beside:
    """Looks once which of these metrics there are, then writes their queries."""

    def __init__(self, server: Prometheus, asked: Asked, notes: list[str]) -> None:
        self._asked = asked
        self._labels: dict[str, JobLabels] = {}
        self._command: tuple[str, JobLabels] | None = None
        for name in dict.fromkeys((*asked.tokens, *asked.steps)):
            present = server.label_names(_selected(name), asked.start_s, asked.until_s)
            if present:
                self._labels[name] = _labels_of(present, asked.job_labels)
            elif name not in (*TOKENS, *STEPS):
                notes.append(f"no samples of {name} from {when(asked.start_s)} to {when(asked.until_s)}")
        if asked.command_label is not None:
            check_label(asked.command_label, "--command-label")
            self._command = self._with_command(server)

    def _with_command(self, server: Prometheus) -> tuple[str, JobLabels]:
        engines = [metric.name for exporter in EXPORTERS for metric in exporter.engine]
        for name in (*COMMAND_METRICS, *engines):
            present = server.label_names(name, self._asked.start_s, self._asked.until_s)
            if self._asked.command_label in present:
                return name, _labels_of(present, self._asked.job_labels)
        places = " and ".join(COMMAND_METRICS)
        label = self._asked.command_label
        raise UsageError(f"--command-label: neither the GPUs' metrics nor {places} have a label {label}")

    def queries(self, width_s: int) -> Iterator[tuple[str, str]]:
        """Names and queries for a window; counters may start anew."""
        for name, labels in self._labels.items():
            yield name, f"sum by ({', '.join(labels.names)}) (increase({_selected(name)}[{width_s}s]))"
        if self._command is not None:
            metric, labels = self._command
            label = self._asked.command_label
            selected = f'{metric}{{{label}!=""}}[{width_s}s]'
            yield "commands", f"group by ({', '.join((*labels.names, str(label)))}) (last_over_time({selected}))"

    def meaning(self, name: str) -> tuple[JobLabels, str]:
        """The labels of a query's answer that name a job, and what it tells: tokens, steps or a command."""
        if name == "commands" and self._command is not None:
            return self._command[1], "command"
        return self._labels[name], "steps" if name in self._asked.steps else "tokens"

    def command_in(self, labels: Mapping[str, str]) -> str:
        """The command that a series' labels hold."""
        return labels.get(str(self._asked.command_label), "")


def _labels_of(present: Sequence[str], given: Sequence[str]) -> JobLabels:
    """The labels of a job on another metric than the GPUs': the chosen ones where it has them."""
    return job_labels(present, given if set(given) <= set(present) else ())


def _selected(name: str) -> str:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'{{__name__="{quoted}"}}'
