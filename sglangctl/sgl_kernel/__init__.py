"""sgl-kernel: what a wheel holds, whether it works here, and how it is built and installed."""
