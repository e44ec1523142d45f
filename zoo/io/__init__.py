"""Bytes and files: limits on what is read, and errors of foreign parsers."""
