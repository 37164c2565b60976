"""What would fail later, found while the old engine serves: two gates, each with its findings.

`before`: read-only, from the probe's document and the weights. `staged`: the engine's own parser
and imports, in the environment that was made beside the old engine.
"""
