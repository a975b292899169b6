"""Towers that read images or sound or speak, and what joins them to a language model; `families` put them together."""
