"""Layers, and the switches they differ by, that several families are made of.

Most families are the decoder of `decoder`, whose switches are in `decoder_design`: each sets some, and may hand in an
attention, a mixer or an MLP of its own; `mixture` is that decoder with routed experts. A name says what a file holds:

    *_attention     one kind of attention, with its projections
    *_mixer         a mixer with a state in place of keys and values, as `delta_net`, `kimi_delta`, `matrix_lstm` are
    *_experts       one kind of routed experts; `routed_experts` has what they share
    *_layer(s)      the layers of one line of models
    *_ends          what comes before and after them
    *_design        the switches by which the models of a line differ
    *_defaults      what configuration classes take for keys that a config leaves out
"""
