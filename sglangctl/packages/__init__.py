"""Fill an environment: from a lock by uv, otherwise by pip."""
