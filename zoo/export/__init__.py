"""ONNX export, and the gate that an exported graph must pass."""
