"""ONNX graphs of models: tracing, rewrites and files."""
