"""One file for each name in `sglangctl help all`. No decision is taken here; nothing imports a command."""
