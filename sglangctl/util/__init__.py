"""No knowledge of hosts or engines: safe text for a terminal, OSError sentences, typed reads of untrusted JSON."""
