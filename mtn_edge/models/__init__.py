"""The networks: pure `nn.Module`s that know nothing of files, training or decoding."""
