"""Files: safe reading and parsing, atomic output, digests, locks, tensors in files."""
