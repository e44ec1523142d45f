"""Uploads of converted models to Hub repositories."""
