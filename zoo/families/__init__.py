"""Base classes for plugins: families, heads, configurations and ONNX specifications."""
