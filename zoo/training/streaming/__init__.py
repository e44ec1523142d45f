"""Runs that read their text while they train on it."""
