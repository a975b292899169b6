"""Weights, gradients, master copies and optimizer states of a rank."""
