"""Configuration of a run: schema, defaults and overrides."""
