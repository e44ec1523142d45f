"""Configuration of a distillation run: its student, and the settings that follow from it."""
