"""Claims and their measurements, one script each: python -m benchmarks.NAME."""
