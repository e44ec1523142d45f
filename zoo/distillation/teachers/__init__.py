"""Teachers: on torch, on ONNX Runtime, and with outputs that are kept on disk."""
