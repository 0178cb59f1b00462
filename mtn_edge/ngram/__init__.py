"""A subword n-gram: counted, estimated, pruned to a number of bytes, asked, kept in a file."""
