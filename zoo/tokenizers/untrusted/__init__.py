"""Checks of ``tokenizer.json`` of unknown origin."""
