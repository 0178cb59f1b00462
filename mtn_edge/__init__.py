"""mtn-edge: from a search log to a few megabytes that suggest the next query, within milliseconds of a key press."""

__version__ = "0.1.0"
