"""Asks systemd and the container engines, and parses their answers."""
