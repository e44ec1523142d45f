"""Logs of a run: JSON lines, TensorBoard, progress bar and report."""
