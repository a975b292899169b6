"""The moments of a step, each with what it holds."""
