"""Readers of files: documents of text, and tables of rows."""
