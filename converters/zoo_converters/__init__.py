"""File formats: bytes to named tensors. No family is named here."""
