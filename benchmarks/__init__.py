"""Benchmarks and measurements, one script each: ``python -m benchmarks.NAME``."""
