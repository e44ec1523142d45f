"""Names and sizes of the files of published checkpoints."""

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
HEADERS = 300_000  # maximum size of names, shapes and offsets in bytes
