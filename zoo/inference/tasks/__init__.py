"""Tasks, which map texts to JSON-serializable results with any ``Session``."""
