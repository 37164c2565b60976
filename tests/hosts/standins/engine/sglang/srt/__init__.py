"""The serving runtime: only what a caller that checks flags imports."""
