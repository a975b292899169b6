"""Layers, and the switches they differ by, that several families are made of."""
