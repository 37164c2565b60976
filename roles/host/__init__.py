"""Files, folders and our program on a host, as they should be."""
