"""Samples of fine-tuning data: their columns, and how many tokens they have."""
