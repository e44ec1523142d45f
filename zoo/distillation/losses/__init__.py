"""Loss terms that compare a student with its teachers."""
