"""Byte-pair encoding: byte-level and word-level."""
