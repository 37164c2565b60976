"""Installed by a rule that is not about targets."""
