"""The host program, what it knows of the inventory, and the one fact about a host."""
