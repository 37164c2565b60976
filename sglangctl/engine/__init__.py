"""A running engine looked at from outside: processes, port owner, HTTP answers, one generation, readiness."""
