"""Stop the engines and take away what was put on the host; never weights, never foreign units."""

from roles.job import begin
from roles.switch.deploy import remove_engines

if job := begin("remove"):
    remove_engines(job)
