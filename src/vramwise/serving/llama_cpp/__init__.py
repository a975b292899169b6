"""llama.cpp, ik_llama.cpp and ollama: placement, caches and compute buffers."""
