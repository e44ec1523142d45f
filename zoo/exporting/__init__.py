"""Export to ONNX; a graph is compared with torch before it is published."""
