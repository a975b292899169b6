"""Plain transformers: `generate`, its caches and its moments."""
