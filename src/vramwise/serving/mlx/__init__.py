"""MLX: weights, a cache that grows in steps, and the fullest layer of a prompt's chunk."""
