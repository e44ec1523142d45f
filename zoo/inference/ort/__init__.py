"""Models in ONNX Runtime."""
