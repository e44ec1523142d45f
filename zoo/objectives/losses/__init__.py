"""Losses and metrics that several objectives share."""
