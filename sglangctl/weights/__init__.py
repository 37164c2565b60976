"""Is a folder of weights whole? File headers against the index, names and sizes; reads only."""
