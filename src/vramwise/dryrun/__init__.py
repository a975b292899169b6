"""Dry run: the real module, or a script, on fake CUDA tensors; every allocation is replayed through the allocator.

`fake_cuda` and `card` stand in for a card, `tracer` watches, `recorder` replays, `run` is a scenario's run, `worker`
its process, `scenario` and `outcome` make the result. Nothing here imports torch before it runs.
"""
