"""Implementation profiles: how a framework turns a block's operations into primitive ones."""
