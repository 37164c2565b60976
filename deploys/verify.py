"""Ask every engine for the proof that it serves; changes nothing on the host."""

from roles.job import begin
from roles.readiness.deploy import verify

if job := begin("verify"):
    verify(job)
