"""Output directories: staging, atomic replacement, and rules for ``--force``."""
