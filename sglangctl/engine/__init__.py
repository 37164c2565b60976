"""A running engine from outside: processes, port owner, HTTP answers, one generation, readiness."""
