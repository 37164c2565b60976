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
unpack=
want() { need="$need $1"; }

python3 -c 'import ensurepip, venv' 2>/dev/null || want 'python3 python3-venv'

if [ "${1:-all}" = test ]; then
    command -v systemd-analyze >/dev/null || want systemd
    command -v logrotate >/dev/null || [ -x /usr/sbin/logrotate ] || want logrotate
    command -v cc >/dev/null || want 'gcc libc6-dev'
    command -v ps >/dev/null || want procps
    # Unpacked, not installed: Debian's package would begin to listen here.
    unpacked=$(dirname "$0")/../../.cache/prometheus
    command -v promtool >/dev/null || [ -x "$unpacked/usr/bin/promtool" ] || unpack=prometheus
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
[ -n "$need$unpack" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "error: missing here:$need${unpack:+ $unpack} (names of Debian's packages); install them and run this again" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "error: missing here:$need${unpack:+ $unpack}; as root: apt-get install$need${unpack:+ $unpack}" >&2
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
say "Reading the package lists (for$need${unpack:+ $unpack})" $sudo apt-get update
if [ -n "$need" ]; then
    say "Installing$need" $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends $need
fi
if [ -n "$unpack" ]; then
    mkdir -p .cache
    folder=$(mktemp -d .cache/prometheus.XXXXXX)
    say "Unpacking $unpack into .cache (about 10 s)" sh -c \
        'cd "$1" && apt-get download "$2" && dpkg-deb -x "$2"_*.deb . && rm -- "$2"_*.deb' \
        sh "$folder" "$unpack"
    rm -rf .cache/prometheus
    mv "$folder" .cache/prometheus
fi
