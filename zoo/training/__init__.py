"""The engine that teaches a model an objective: exact to the bit, on one device or on many."""
