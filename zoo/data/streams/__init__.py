"""Text that is read while a run trains on it, without a corpus."""
