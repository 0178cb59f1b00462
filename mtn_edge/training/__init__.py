"""From a dataset to a checkpoint: the training loop and its command."""
