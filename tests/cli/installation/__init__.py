"""Tests of the commands about the installation."""
