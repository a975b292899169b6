"""The map of the code: layers as pyproject.toml orders them, who imports whom, and what each package is for."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path

from reference import row, table

from vramwise import svg

_MARKS = str.maketrans("", "", "()")
_LAYERS = 1000
_ROW, _GAP = 58, 10


def pages(root: Path) -> dict[str, str]:
    """The page and its picture."""
    layers = _layers(root)
    imports = _imports(root / "src/vramwise")
    return {"reference/architecture.md": _page(root, layers, imports), "reference/architecture.svg": _map(root, layers)}


def _layers(root: Path) -> list[list[str]]:
    """Packages by layer, highest first."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    contract = next(one for one in settings["tool"]["importlinter"]["contracts"] if one["name"] == "layers")
    return [[name.strip() for name in _words(line)] for line in contract["layers"]]


def _words(line: str) -> list[str]:
    return line.translate(_MARKS).replace(":", "|").split("|")


def _files(root: Path, name: str) -> list[Path]:
    package = root / "src/vramwise" / name
    return sorted(package.rglob("*.py")) if package.is_dir() else [package.with_suffix(".py")]


def _imports(package: Path) -> dict[str, set[str]]:
    """Which packages each package imports, at any place of its code."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in package.rglob("*.py"):
        own = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vramwise"):
                parts = (node.module or "").split(".")
                names = parts[1:2] or [one.name for one in node.names if not one.name.startswith("_")]
                found[own] |= {name for name in names if name != own}
    return found


def _about(path: Path) -> str:
    """The first sentence of a package's or module's docstring."""
    home = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return " ".join((ast.get_docstring(ast.parse(home.read_text("utf-8"))) or "").split("\n\n")[0].split())


def _page(root: Path, layers: list[list[str]], imports: dict[str, set[str]]) -> str:
    known = {name for layer in layers for name in layer}
    parts = [
        "# Where does what live?\n\nImports go down only; `lint-imports` holds every package to it. The picture "
        "and the "
        "tables are made from the code when this site is built. [A tour](../inside/tour.md) follows one number through "
        "it.\n\n![Packages by layer, the command line on top](architecture.svg)\n\n"
    ]
    rows = []
    for layer in layers:
        for name in layer:
            files = _files(root, name)
            lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
            uses = ", ".join(f"`{one}`" for one in sorted(imports[name] & known))
            rows.append(row(f"`{name}`", _about(root / "src/vramwise" / name), f"{len(files):,}", f"{lines:,}", uses))
    parts.append(table(("package", "what it is for", "files", "lines", "imports"), rows))
    parts += [
        f"## Inside `{name}`\n\n{_inside(root / 'src/vramwise' / name)}"
        for name in ("training", "serving", "models", "scenario", "cli")
    ]
    return "".join(parts)


def _inside(package: Path) -> str:
    parts = (one for one in sorted(package.iterdir()) if one.suffix == ".py" or (one / "__init__.py").exists())
    rows = [row(f"`{one.name}`", _about(one)) for one in parts if one.name != "__init__.py"]
    return table(("part", "what it is for"), rows)


def _map(root: Path, layers: list[list[str]]) -> str:
    height = len(layers) * (_ROW + _GAP) + _GAP
    parts = []
    for i, layer in enumerate(layers):
        top = _GAP + i * (_ROW + _GAP)
        width = (_LAYERS - _GAP) / len(layer)
        for j, name in enumerate(layer):
            left = _GAP + j * width
            about = _about(root / "src/vramwise" / name)
            parts.append(svg.box(left, top, width - _GAP, _ROW, "#e0f2f1", title=about, stroke="#00796b"))
            parts.append(svg.text(left + 10, top + 23, name, size=14, bold=True))
            most = int((width - _GAP - 16) / 6)
            short = about if len(about) <= most else f"{about[: most - 1].rstrip()}…"
            parts.append(svg.text(left + 10, top + 43, short, size=11, fill="#444"))
    return svg.document(_LAYERS, height, parts, title="Packages by layer", fixed=False)
