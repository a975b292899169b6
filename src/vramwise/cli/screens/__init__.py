"""What a person sees: results as lines of text."""
