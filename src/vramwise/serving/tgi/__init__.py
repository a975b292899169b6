"""text-generation-inference: a warm-up prefill, then blocks."""
