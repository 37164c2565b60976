"""All-reduces with an engine's own torch on its own GPUs, each result checked."""
