"""The prefix constraint, and beam search in PyTorch as the reference of the graphs."""
