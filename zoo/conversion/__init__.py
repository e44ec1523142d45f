"""Conversion of checkpoints to the zoo's layout and back to the Hub's."""
