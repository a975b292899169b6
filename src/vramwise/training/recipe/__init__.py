"""What a scenario's training settings mean: versions, defaults, adapters, heads, images, masks."""
