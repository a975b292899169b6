"""SGLang: the share of a card that weights and the KV cache get, its defaults and refusals."""
