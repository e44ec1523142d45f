"""Training examples: packing, masking, span noise and sentence pairs. Imports no torch."""
