"""Stop the engines and keep them down, also after a reboot; deploys/sglang.py starts them again."""

from roles.visit import visit
from roles.switch.ending import stop_engines

if job := visit("stop"):
    stop_engines(job)
