"""How the controller talks to one host: program, snapshot, link, long commands, failing."""
