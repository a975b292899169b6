"""What all engines share: how weights are stored and cut, the KV cache, shares of a card, versions, constants."""
