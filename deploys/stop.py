"""Stop the engines and keep them down, also after a reboot; deploys/sglang.py starts them again."""

from roles.stages import existing_host, stop_engines

if host := existing_host("stop"):
    stop_engines(host)
