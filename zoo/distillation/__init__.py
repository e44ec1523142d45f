"""Distillation of a student from one or several teachers, on the trainer of all runs."""
