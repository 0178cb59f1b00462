"""Compression of weights: how numbers become fewer or smaller."""
