"""Tests of ``zoo probe``."""
