"""The controller side: one package per concern, from a validated spec to pyinfra operations."""
