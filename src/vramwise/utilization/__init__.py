"""How well GPUs are used: FLOPs and MFU, published throughputs, the inference roofline, profiler traces."""
