"""Which release is live, and the one transaction that changes it."""
