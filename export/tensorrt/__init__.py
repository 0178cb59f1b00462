"""Engines for GPU servers: an encoder and a whole search, by TensorRT or TensorRT for RTX (docs/tensorrt.md)."""
