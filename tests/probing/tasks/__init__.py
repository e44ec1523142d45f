"""Tests of probing tasks."""
