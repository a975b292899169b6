"""The NIM operator's services: a container of NVIDIA NIM, by its image and variables.

Read in NVIDIA/k8s-nim-operator api/apps/v1alpha1/nimservice_types.go: `image` (repository, tag), `env`.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.interop.files.programs import Program
from vramwise.interop.files.tables import table_in, tables_in


def nim_service(document: object, name: str) -> list[Program] | None:
    """The container of a NIMService; None for other documents."""
    if not isinstance(document, Mapping) or document.get("kind") != "NIMService":
        return None
    spec = table_in(document.get("spec"))
    image = table_in(spec.get("image"))
    repository, tag = str(image.get("repository") or ""), str(image.get("tag") or "")
    variables = [f"{one.get('name')}={one['value']}" for one in tables_in(spec.get("env")) if "value" in one]
    return [Program(name, (*variables, f"{repository}:{tag}" if tag else repository))] if repository else []
