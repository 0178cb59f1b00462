"""Lowering: ONNX graphs, bundles, their verification."""
