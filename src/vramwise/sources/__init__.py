"""Where the description of a model comes from: the catalog, a folder or config.json, the Hub's cache, a table."""

from vramwise.sources.catalog import CatalogEntry, catalog
from vramwise.sources.elsewhere import is_elsewhere, model_elsewhere
from vramwise.sources.resolve import ModelSource, resolve

__all__ = ["CatalogEntry", "ModelSource", "catalog", "is_elsewhere", "model_elsewhere", "resolve"]
