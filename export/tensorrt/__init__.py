"""Engines for GPU servers: an encoder and a search with fixed shapes, by TensorRT or TensorRT for RTX (docs/tensorrt.md)."""
