"""Settings of a run: their schema, defaults and overrides."""
