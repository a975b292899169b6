"""The Hugging Face cache on disk, read by its documented layout and without the client library.

<cache>/models--ORG--NAME/refs/main             the commit that `main` meant at download
<cache>/models--ORG--NAME/snapshots/COMMIT/config.json
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")


def cache_folder() -> Path:
    """HF_HUB_CACHE, else HF_HOME/hub, else the user's cache folder, as huggingface_hub decides."""
    if folder := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder)
    if home := os.environ.get("HF_HOME"):
        return Path(home) / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "huggingface" / "hub"


def cached_config(repo_id: str) -> Path | None:
    """Path of the config.json of `repo_id` at `main` when it was downloaded before."""
    if not _REPO.fullmatch(repo_id):
        return None
    folder = cache_folder() / f"models--{repo_id.replace('/', '--')}"
    try:
        commit = (folder / "refs" / "main").read_text(encoding="ascii").strip()
        config = folder / "snapshots" / commit / "config.json"
        return config if _COMMIT.fullmatch(commit) and config.is_file() else None
    except (OSError, ValueError):
        return None
