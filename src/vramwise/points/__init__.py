"""Many configurations at once: the code of an answer runs on sizes that each stand for a column of numbers."""
