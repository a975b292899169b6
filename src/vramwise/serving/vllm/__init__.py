"""vLLM: profiles by version, what the start-up profile run takes, the budget and the KV cache pool."""
