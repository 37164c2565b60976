"""What an engine has compiled, as one archive: its key, packed on one host, unpacked on another."""
