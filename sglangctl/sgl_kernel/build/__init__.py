"""Building sgl-kernel from source, in a unit of its own, into the cache of wheels."""
