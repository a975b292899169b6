"""PyTorch profiler traces (Kineto's Chrome-trace JSON): reading them, and what they say about each rank."""
