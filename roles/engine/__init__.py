"""The engine's user, folders, venv and staged release. Slow, and disturbs nothing that runs."""
