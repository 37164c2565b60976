"""Runs on a test host: become a process with a command line, a user and open GPUs of one's choice.

    python3 hold.py '{"argv": ["VLLM::Worker", "900"], "gpus": [0], "memory_mib": 5000}'

Prints its pid and goes on as /bin/sleep (or `exe`) under that argv, in a session of its own.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import sys


def main(wanted: dict[str, object]) -> None:
    if os.fork():
        os.wait()
        return
    os.setsid()
    pid = os.fork()
    if pid:
        # As a unit's main process that died: the session stays, its leader is gone.
        print(pid, flush=True)
        os._exit(0)
    if wanted.get("session", "own") == "own":
        os.setsid()
    gpus = wanted.get("gpus", [])
    for gpu in gpus:  # type: ignore[attr-defined]
        os.set_inheritable(os.open(f"/dev/nvidia{gpu}", os.O_RDWR), True)
    if wanted.get("memory_mib"):
        said = os.memfd_create("fake-nvidia", 0)
        text = {str(gpu): {"memory_mib": wanted["memory_mib"]} for gpu in gpus}  # type: ignore[attr-defined]
        os.write(said, json.dumps(text).encode())
    if wanted.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if wanted.get("user"):
        user = pwd.getpwnam(str(wanted["user"]))
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    argv = [os.fsencode(word) for word in wanted["argv"]]  # type: ignore[attr-defined]
    os.execv(str(wanted.get("exe", "/bin/sleep")), argv)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
