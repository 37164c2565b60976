"""Stop the engines and take away what was put on the host; never weights, never foreign units."""

from roles.visit import visit
from roles.switch.ending import remove_engines

if job := visit("remove"):
    remove_engines(job)
