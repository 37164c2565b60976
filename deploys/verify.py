"""Ask every engine for the proof that it serves; changes nothing on the host."""

from roles.visit import visit
from roles.readiness.deploy import verify

if job := visit("verify"):
    verify(job)
