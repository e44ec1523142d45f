"""Tests of ``zoo look``."""
