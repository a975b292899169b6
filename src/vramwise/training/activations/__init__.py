"""What forward keeps for backward, by kernels, loss, precision and checkpointing."""
