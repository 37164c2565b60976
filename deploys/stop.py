"""Stop the engines and keep them down, also after a reboot; deploys/sglang.py starts them again."""

from roles.job import begin
from roles.switch.deploy import stop_engines

if job := begin("stop"):
    stop_engines(job)
