"""Adapters in the layout of peft: read next to their base, and written."""
