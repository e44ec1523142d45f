"""Kernels, shapes and copies of batches on the device of a run."""
