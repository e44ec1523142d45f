"""Quality, size and speed of a student beside its teachers, before and after a run."""
