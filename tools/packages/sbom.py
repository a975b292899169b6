"""A bill of materials (CycloneDX 1.6) of an installed vramwise: itself, what is part of its page, and everything that
it asks for, with versions.

python tools/packages/sbom.py > sbom.json, in the environment that is meant. What an extra brings is `optional`.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files

NAME = re.compile(r"[A-Za-z0-9._-]+")


def bill() -> dict[str, object]:
    """The document; the same environment gives the same document."""
    own = distribution("vramwise")
    required = _closure(own, extras=False)
    optional = {name: one for name, one in _closure(own, extras=True).items() if name not in required}
    found = {**dict.fromkeys(required, "required"), **dict.fromkeys(optional, "optional")}
    every = {**required, **optional}
    components = [_component(every[name], found[name]) for name in sorted(every)] + _vendored()
    seed = json.dumps([own.version, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, seed)}",
        "version": 1,
        "metadata": {"component": {**_component(own, "required"), "type": "application"}},
        "components": components,
        "dependencies": [
            {"ref": _reference(one), "dependsOn": sorted(_reference(every[n]) for n in _asked(one) if n in every)}
            for one in (own, *(every[name] for name in sorted(every)))
        ],
    }


def _component(one: Distribution, scope: str) -> dict[str, object]:
    said = one.metadata.get("License-Expression") or one.metadata.get("License")
    named = {"licenses": [{"license": {"name": said.splitlines()[0][:100]}}]} if said else {}
    return {
        "type": "library", "bom-ref": _reference(one), "name": one.name, "version": one.version, "scope": scope,
        "purl": _reference(one), **named,
    }  # fmt: skip


def _vendored() -> list[dict[str, object]]:
    """Other people's files in the package, as `vendored.json` beside them names them."""
    text = (files("vramwise") / "web/page/vendor/vendored.json").read_text("utf-8")
    return [
        {
            "type": "library", "bom-ref": one["purl"], "name": one["name"], "version": one["version"],
            "scope": "required", "purl": one["purl"], "licenses": [{"license": {"id": one["license"]}}],
            "hashes": [{"alg": "SHA-512", "content": one["archive_sha512"]}],
        }
        for one in json.loads(text)
    ]  # fmt: skip


def _reference(one: Distribution) -> str:
    return f"pkg:pypi/{_plain(one.name)}@{one.version}"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _closure(own: Distribution, *, extras: bool) -> dict[str, Distribution]:
    """What a package asks for, and what these ask for, by name; what is not installed is left out."""
    found: dict[str, Distribution] = {}
    waiting = list(_asked(own, extras=extras))
    while waiting:
        name = waiting.pop()
        if name in found or name == "vramwise":
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        waiting += _asked(found[name])
    return found


def _asked(one: Distribution, *, extras: bool = False) -> set[str]:
    """Names of requirements; of those behind a marker only extras' are asked for, and only where `extras`."""
    asked = set()
    for line in one.requires or ():
        requirement, _, marker = line.partition(";")
        match = NAME.match(requirement)
        if match and (extras or "extra ==" not in marker):
            asked.add(_plain(match.group()))
    return asked


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1, sort_keys=True)
    print()
