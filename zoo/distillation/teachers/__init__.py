"""Teachers: in torch, in ONNX Runtime, and with their outputs cached on disk."""
