"""Checks of models against their declarations and against reference implementations."""
