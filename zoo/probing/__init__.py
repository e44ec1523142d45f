"""Probing: what a small classifier reads from each frozen layer of a model (``zoo probe``)."""
