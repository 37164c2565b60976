"""Put the release before the live one of every engine live again; deploys/sglang.py ends that."""

from roles.stages import existing_host, rollback_engines

if host := existing_host("rollback"):
    rollback_engines(host)
