"""One JSON document about this host for the controller. Read-only."""
