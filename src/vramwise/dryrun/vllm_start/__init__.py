"""vLLM's own start without a card: its Python loads a model without weights and runs its profile run on fake tensors.

Imported in a process of its own (`worker`), in the environment where vLLM is installed; nothing here is vLLM's.
"""
