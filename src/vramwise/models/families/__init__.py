"""One small file of blocks for each family of architectures."""
