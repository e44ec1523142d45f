"""Preprocessing of the inputs of tasks, and postprocessing of outputs."""
