"""How good a model is: metrics, baselines, the protocol, the report."""
