"""Output directories: staged, atomically renamed, and overwritten with ``--force`` alone."""
