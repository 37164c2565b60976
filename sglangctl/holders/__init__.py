"""Which processes have the GPUs open, and the class of each. Reads only."""
