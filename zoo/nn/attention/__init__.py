"""Masks of attention."""
