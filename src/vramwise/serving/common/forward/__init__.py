"""What a forward pass of an engine holds at its fullest moment, walked operation by operation."""
