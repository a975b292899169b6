"""Which part of a model a rank holds, how layers are cut, and which layouts can run."""
