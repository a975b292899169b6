"""llama.cpp, ik_llama.cpp and ollama: tensor types of a GGUF file, placement, caches and compute buffers."""
