"""Ask every engine for the proof that it serves; changes nothing on the host."""

from roles.stages import existing_host, verify

if host := existing_host("verify"):
    verify(host)
