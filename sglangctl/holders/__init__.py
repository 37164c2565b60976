"""Who has the GPUs open, and of which class each one is. Reads only."""
