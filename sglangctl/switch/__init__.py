"""Transactions under the host lock: switch, stop, remove, configure; and what they would do."""
