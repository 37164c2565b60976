"""/proc, cgroups, sockets and pidfds, read as data. Knows no unit, no GPU, no engine."""
