#!/bin/sh
# Install what this machine lacks for the demo and the tests: Debian or Ubuntu packages, no others.
# Does nothing, and needs no rights, where all is there.
#
#   packages.sh check    for `make check`: a Python with venv
#   packages.sh all      for container hosts: also Docker's engine, mmdebstrap, an ssh client
#   packages.sh test     for `make test`: also programs without which some tests are skipped
#   packages.sh real     for `make test-real`: also a browser
set -eu

need=
want() { need="$need $1"; }

python3 -c 'import ensurepip, venv' 2>/dev/null || want 'python3 python3-venv'

if [ "${1:-all}" = test ]; then
    command -v systemd-analyze >/dev/null || want systemd
    command -v logrotate >/dev/null || [ -x /usr/sbin/logrotate ] || want logrotate
    command -v cc >/dev/null || want 'gcc libc6-dev'
    command -v ps >/dev/null || want procps
fi
if [ "${1:-all}" = real ]; then
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || want chromium
fi
if [ "${1:-all}" != check ]; then
    command -v ssh-keygen >/dev/null || want openssh-client
    command -v mmdebstrap >/dev/null || want mmdebstrap
    # Ubuntu has mmdebstrap but not Debian's keys.
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || want debian-archive-keyring
    # A client alone is no engine; and where an engine of Docker's own packages answers, it stays.
    if ! docker info >/dev/null 2>&1 && ! [ -x /usr/sbin/dockerd ] && ! [ -x /usr/bin/dockerd ]; then
        want docker.io
    fi
    command -v docker >/dev/null || case $need in *docker.io*) ;; *) want docker.io ;; esac
fi
[ -n "$need" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "error: missing here:$need (names of Debian's packages); install them and run this again" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "error: missing here:$need; as root: apt-get install$need" >&2
        exit 1
    fi
    sudo=sudo
fi
cd "$(dirname "$0")/../.."

say() { python3 -m tests.hosts.say "$@"; }
apt() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

if ! command -v python3 >/dev/null; then
    # It shows the progress of all else.
    echo "==> Installing python3 (some 20 s)"
    apt -qq update
    apt -qq install --yes --no-install-recommends python3 >/dev/null
fi
say "Reading the package lists (for$need)" $sudo apt-get update
say "Installing$need" $sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends $need
