"""Where a run begins: hosts for pyinfra, who is connected to, the console scripts."""
