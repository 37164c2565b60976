"""The kernel library of an engine: an installed one that fits, a wheel, or a build."""
