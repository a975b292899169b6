"""llama.cpp's graphs and the allocator that gives their tensors memory."""
