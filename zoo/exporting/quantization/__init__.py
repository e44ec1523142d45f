"""Quantized copies of graphs, and their agreement with float32."""
