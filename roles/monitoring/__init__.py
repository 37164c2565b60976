"""Prometheus and node_exporter from Debian's packages, and what they are told of the inventory."""
