"""A container that is a host: systemd as PID 1, sshd, an address of its own, fake GPU devices.

    host = Host.create("sglang-demo", gpus=2)
    host.exec("systemctl", "is-active", "ssh")
    host.reboot()
    host.remove()

Everything that a host leaves on this machine carries a label, and `remove_all` takes away
what this checkout made.
"""

from __future__ import annotations

import fcntl
import io
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hosts import images, pip_settings
from tests.hosts.images import LABEL
from tests.hosts.say import CACHE, ROOT, Failure, captured, output

STATE = CACHE / "hosts"

BOOT_TIMEOUT_S = 60.0

# systemd needs to mount, to trace and to make devices. Not --privileged: that asks for more than
# an engine inside a sandbox may give (CAP_SYS_RESOURCE) and shows it the real machine's devices.
RIGHTS = (
    "--cap-add=SYS_ADMIN",
    "--cap-add=SYS_PTRACE",
    "--cap-add=MKNOD",
    "--cap-add=NET_ADMIN",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--cgroupns=private",
    "--tmpfs=/run",
    "--tmpfs=/run/lock",
    "--stop-signal=RTMIN+3",
)


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine inside the host."""

    source: Path
    target: str
    read_only: bool = True


@dataclass
class Host:
    """A running container host.

    + name: the container's name, host name and network name
    + ip: address on its own network; reachable from this machine
    + ssh_key: private key that root and the user `debian` (with sudo) accept
    + known_hosts: file with this host's key, for strict checking
    + ssh_config: for `ssh -F FILE NAME`, and for an inventory's `ssh: {config: FILE}`
    """

    name: str
    ip: str
    ssh_key: Path
    known_hosts: Path

    @classmethod
    def create(
        cls,
        name: str,
        *,
        image: str = "base",
        gpus: int = 0,
        memory: str | None = None,
        shm: str = "1g",
        unified_cgroup: bool = False,
        mounts: Sequence[Mount] = (),
        pip: bool = True,
        boot: Sequence[str] = (),
    ) -> Host:
        """Start a host and wait until sshd answers. A host of that name is replaced.

        + image: a kind of tests/hosts/images.py, built first where it is missing
        + gpus: how many /dev/nvidia<N> it has (plus nvidiactl and nvidia-uvm)
        + memory: limit for the whole host, as Docker writes it (`2g`); none by default
        + shm: size of /dev/shm
        + unified_cgroup: cgroup v2's layout (no controllers) also where this machine has v1 or hybrid
        + pip: hand in this machine's pip configuration
        + boot: what runs as PID 1, sshd among it; by default the image's systemd
        """
        tag = images.ensure(image)
        remove(name)
        _create_network(name)
        settings = pip_settings.effective() if pip else pip_settings.PipSettings("", (), ())
        bound = [*mounts, *(Mount(source, target) for source, target in settings.mounts)]
        argv = ["docker", "create", f"--name={name}", f"--hostname={name}", f"--network={name}"]
        argv += [f"--label={LABEL}={ROOT}", f"--env=CONTAINER_HOST_GPUS={gpus}"]
        argv += [f"--shm-size={shm}", *RIGHTS]
        if unified_cgroup:
            argv.append("--env=CONTAINER_HOST_CGROUP=v2")
        if memory:
            # Without a limit on swap as well, a host at its limit would swap instead of being killed.
            argv += [f"--memory={memory}", f"--memory-swap={memory}"]
        for mount in bound:
            ending = ",readonly" if mount.read_only else ""
            argv.append(f"--mount=type=bind,source={mount.source},target={mount.target}{ending}")
        output([*argv, tag, *boot])
        key = ssh_key()
        host = cls(name, "", key, STATE / name / "known_hosts")
        try:
            public = key.with_suffix(".pub").read_bytes()
            host.copy_in(public, "/etc/ssh/authorized_keys")
            if pip:
                # An index may carry a password in its address.
                host.copy_in(settings.config.encode(), "/etc/pip.conf", mode=0o600)
                for source, target in settings.files:
                    host.copy_in(source, target)
            output(["docker", "start", name])
            host._await_boot()
        except BaseException:
            remove(name)
            raise
        return host

    @property
    def ssh_config(self) -> Path:
        return self.known_hosts.with_name("ssh_config")

    @classmethod
    def find(cls, name: str) -> Host | None:
        """The host of that name, started where it is switched off; None where there is none."""
        running = _inspect(name, "{{.State.Running}}")
        if not running:
            return None
        host = cls(name, "", ssh_key(), STATE / name / "known_hosts")
        if running == "true":
            host._await_boot()
        else:
            host.start()
        return host

    def exec(
        self,
        *argv: str,
        check: bool = True,
        input: str | None = None,
        user: str | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host, past ssh; output as text. With check, a failure raises Failure."""
        command = ["docker", "exec", "--env=LANG=C.UTF-8"]
        if input is not None:
            command.append("--interactive")
        if user is not None:
            command.append(f"--user={user}")
        done = captured([*command, self.name, *argv], input, timeout=timeout)
        if check and done.returncode != 0:
            raise Failure(
                f"{self.name}: {' '.join(argv)}: exit status {done.returncode}:\n"
                f"{done.stdout}{done.stderr}"
            )
        return done

    def ssh(self, *argv: str) -> list[str]:
        """The command line of ssh for this host: what a person types, or a test runs."""
        return ["ssh", f"-F{self.ssh_config}", "-oBatchMode=yes", self.name, *argv]

    def copy_in(
        self,
        source: Path | bytes,
        target: str,
        *,
        mode: int | None = None,
        owner: str = "root:root",
    ) -> None:
        """Put a file, a folder, or bytes at the path `target` in the host; missing folders are made.

        + mode: of a single file; by default the source's own, and 0644 for bytes
        + owner: user and group by number or, on a running host, by name
        """
        path = target.strip("/")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
            if isinstance(source, bytes):
                member = tarfile.TarInfo(path)
                member.size, member.mode, member.mtime = (
                    len(source),
                    mode or 0o644,
                    int(time.time()),
                )
                tar.addfile(member, io.BytesIO(source))
            else:
                tar.add(source, path, filter=lambda member: _as_root(member, mode))
        # `docker cp` does not reach into a tmpfs (/run, /dev/shm), tar inside the host does.
        running = _inspect(self.name, "{{.State.Running}}") == "true"
        if running:
            argv = ["docker", "exec", "--interactive", self.name, "tar", "-x", "-C", "/"]
        else:
            argv = ["docker", "cp", "-", f"{self.name}:/"]
        done = subprocess.run(argv, input=buffer.getvalue(), capture_output=True, timeout=300)
        if done.returncode != 0:
            raise Failure(f"{self.name}: copying to {target}: {done.stderr.decode().strip()}")
        if owner != "root:root":
            self.exec("chown", "--recursive", owner, target)

    def reboot(self) -> None:
        """Cut the power and start again: every process is killed at once, files stay."""
        self.kill()
        self.start()

    def kill(self) -> None:
        output(["docker", "kill", "--signal=KILL", self.name])

    def start(self) -> None:
        output(["docker", "start", self.name])
        self._await_boot()

    def remove(self) -> None:
        remove(self.name)

    def _await_boot(self) -> None:
        """Wait for sshd's banner, learn the address and the host's key through Docker."""
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while True:
            if _inspect(self.name, "{{.State.Running}}") != "true":
                raise Failure(
                    f"{self.name} ended while booting; its console said: {_console(self.name)}"
                )
            template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
            addresses = _inspect(self.name, template).split()
            if addresses and _answers_ssh(addresses[0]):
                break
            if time.monotonic() > deadline:
                raise Failure(
                    f"{self.name}: sshd did not answer within {BOOT_TIMEOUT_S:.0f} s of the boot;"
                    f" look with: docker exec {self.name} systemctl --failed"
                )
            time.sleep(0.1)
        self.ip = addresses[0]
        public = self.exec("cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split()
        self.known_hosts.parent.mkdir(parents=True, exist_ok=True)
        self.known_hosts.write_text(f"{self.ip} {public[0]} {public[1]}\n")
        settings = {
            "HostName": self.ip,
            "User": "root",
            "IdentityFile": self.ssh_key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "StrictHostKeyChecking": "yes",
            "LogLevel": "ERROR",
        }
        text = f"Host {self.name}\n" + "".join(f"    {k} {v}\n" for k, v in settings.items())
        self.ssh_config.write_text(text)


def ssh_key() -> Path:
    """The private key of this checkout's hosts, generated once."""
    STATE.mkdir(parents=True, exist_ok=True)
    path = STATE / "id_ed25519"
    with (STATE / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists() or not path.with_suffix(".pub").exists():
            path.unlink(missing_ok=True)
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "container-hosts"]
            output([*argv, "-f", str(path)])
    return path


def exists(name: str) -> bool:
    """Whether there is a container of that name, running or not."""
    return _inspect(name, "{{.Name}}") != ""


def remove(name: str) -> None:
    """Remove the container host of that name with its disk, its network and its ssh files."""
    for argv, absent in (
        (["docker", "rm", "--force", "--volumes", name], ("no such container",)),
        (["docker", "network", "rm", name], ("not found", "no such network")),
    ):
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0 and not any(text in done.stderr.lower() for text in absent):
            raise Failure(f"{' '.join(argv)}: {done.stderr.strip()}")
    shutil.rmtree(STATE / name, ignore_errors=True)


def remove_all() -> list[str]:
    """Remove every container host of this checkout; returns their names."""
    label = f"label={LABEL}={ROOT}"
    names = output(["docker", "ps", "-a", "--filter", label, "--format", "{{.Names}}"]).split()
    nets = output(["docker", "network", "ls", "--filter", label, "--format", "{{.Name}}"]).split()
    for name in sorted({*names, *nets}):
        remove(name)
    return names


def _create_network(name: str) -> None:
    """A bridge network for one host: links can be cut one by one, and an address is not given away."""
    argv = ["docker", "network", "create", f"--label={LABEL}={ROOT}"]
    try:
        output([*argv, name])
        return
    except Failure as failure:
        # Docker's own pools hold 31 networks.
        if "fully subnetted" not in str(failure) and "non-overlapping" not in str(failure):
            raise
    for number in range(256):
        try:
            output([*argv, f"--subnet=10.213.{number}.0/28", name])
            return
        except Failure as failure:
            if "overlap" not in str(failure):
                raise
    raise Failure("no address range is left for another container host: run `make clean`")


def _as_root(member: tarfile.TarInfo, mode: int | None) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    if mode is not None and member.isfile():
        member.mode = mode
    return member


def _inspect(name: str, template: str) -> str:
    """A field of `docker container inspect`; empty when there is no such container."""
    argv = ["docker", "container", "inspect", "-f", template, name]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0 and "no such container" not in done.stderr.lower():
        raise Failure(f"docker: {done.stderr.strip()}")
    return done.stdout.strip()


def _console(name: str) -> str:
    done = subprocess.run(["docker", "logs", "--tail=5", name], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip() or "nothing"


def _answers_ssh(ip: str) -> bool:
    try:
        with socket.create_connection((ip, 22), timeout=1.0) as connection:
            connection.settimeout(5.0)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
