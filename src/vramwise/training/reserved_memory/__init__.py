"""What torch's allocator reserves for a step: a replay, or a calibrated ratio."""
