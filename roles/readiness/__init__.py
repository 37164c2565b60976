"""Readiness: follow a start over a link that may break, prove that it serves, report."""
