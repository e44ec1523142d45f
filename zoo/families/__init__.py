"""What a plugin subclasses: families, heads, configurations and ONNX specifications."""
