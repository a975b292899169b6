"""Image and video pipelines of Diffusers: text encoders, steps of the denoiser, the VAE's decoder."""
