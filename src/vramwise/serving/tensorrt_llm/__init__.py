"""TensorRT-LLM: a fraction of what is free goes to the KV cache."""
