"""Traces of other profilers, as the events that Kineto would have written."""
