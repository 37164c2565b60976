"""A kernel library looked at: what it holds, whether it fits and works, and its installation."""
