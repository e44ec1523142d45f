"""Export to ONNX, with the comparison that a graph must pass before it is published."""
