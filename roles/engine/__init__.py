"""The engine's user, folders, venv and staged release: slow and harmless."""
