"""`python -m mtn_edge`, the same as `mtn-edge`."""

from mtn_edge.cli import main

main()
