"""Components of image and video pipelines as blocks: denoisers, decoders of latents, text encoders."""
