"""Kinds of operations and how transformers 5.23 runs each of them."""
