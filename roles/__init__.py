"""The controller's side, in rooms: each imports only rooms below it (see docs/architecture.md)."""
