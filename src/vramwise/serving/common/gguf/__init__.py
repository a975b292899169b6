"""GGUF files as llama.cpp's converter and quantizer write them: tensors, their names and their types."""
