#!/bin/sh
# Start a Docker engine where none answers, and stop only the one that was started here.
#
#   docker_engine.sh start    does nothing where `docker info` works; else starts dockerd and waits for it
#   docker_engine.sh stop     stops that dockerd by its pid; an engine of somebody else is left alone
#
# The engine outlives this script. Its pid and log lie in .cache/docker/ of the checkout.
set -eu

cd "$(dirname "$0")/../.."
state=.cache/docker
wait_s=60

answers() { docker info >/dev/null 2>&1; }

# A pid can be taken by another program after a reboot: only a dockerd counts as ours.
ours() {
    [ -f "$state/dockerd.pid" ] || return 1
    pid=$(cat "$state/dockerd.pid")
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]
}

start() {
    if answers; then
        echo "docker: the engine answers"
        return
    fi
    daemon=$(command -v dockerd || true)
    for candidate in /usr/sbin/dockerd /usr/bin/dockerd; do
        if [ -z "$daemon" ] && [ -x "$candidate" ]; then daemon=$candidate; fi
    done
    if [ -z "$daemon" ]; then
        echo "docker: no engine answers and there is no dockerd: apt-get install docker.io" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        echo "docker: no engine answers for $(id -un): start Docker, or run this as root" >&2
        return 1
    fi
    mkdir -p "$state"
    # A dockerd that was killed leaves these behind, and a new one takes another program that got
    # the pid meanwhile for itself or for its containerd.
    drop_stale /var/run/docker.pid dockerd
    drop_stale /var/run/docker/containerd/containerd.pid containerd
    # overlay2 is quick and small; where the kernel cannot stack overlays, vfs is left.
    driver=$(storage_driver)
    echo "docker: starting $daemon with storage $driver (log: $state/dockerd.log)"
    setsid nohup "$daemon" --storage-driver "$driver" >"$state/dockerd.log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$state/dockerd.pid"
    waited=0
    until answers; do
        if ! grep -q '^State:[[:space:]]*[^Z]' "/proc/$pid/status" 2>/dev/null; then
            echo "docker: dockerd ended at once: $(tail -n 1 "$state/dockerd.log")" >&2
            return 1
        fi
        if [ "$waited" -ge "$wait_s" ]; then
            echo "docker: no answer after $wait_s s: read $state/dockerd.log" >&2
            return 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
    echo "docker: ready after $waited s"
}

drop_stale() {
    if [ -f "$1" ] && [ "$(cat "/proc/$(cat "$1")/comm" 2>/dev/null)" != "$2" ]; then
        rm -f "$1"
    fi
}

storage_driver() {
    probe=/var/lib/docker/.overlay-probe
    rm -rf "$probe"
    mkdir -p "$probe/lower" "$probe/upper" "$probe/work" "$probe/merged"
    if mount -t overlay overlay "$probe/merged" \
        -o "lowerdir=$probe/lower,upperdir=$probe/upper,workdir=$probe/work" 2>/dev/null; then
        umount "$probe/merged"
        echo overlay2
    else
        echo vfs
    fi
    rm -rf "$probe"
}

stop() {
    if ! ours; then
        echo "docker: no engine was started here"
        rm -f "$state/dockerd.pid"
        return
    fi
    kill "$pid"
    waited=0
    while [ -d "/proc/$pid" ]; do
        if [ "$waited" -ge "$wait_s" ]; then
            echo "docker: dockerd $pid did not end within $wait_s s: read $state/dockerd.log" >&2
            return 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
    rm -f "$state/dockerd.pid"
    echo "docker: stopped the engine that was started here"
}

case "${1:-}" in
start) start ;;
stop) stop ;;
*)
    echo "usage: $0 start|stop" >&2
    exit 2
    ;;
esac
