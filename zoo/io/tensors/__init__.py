"""Tensors in files: safetensors, byte ranges and lazily read arrays."""
