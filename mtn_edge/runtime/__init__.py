"""What a device needs: opening a bundle and asking it for suggestions (numpy, onnxruntime, tokenizers; never torch)."""
