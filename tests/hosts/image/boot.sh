#!/bin/sh
# PID 1 of a container host until systemd takes over: does what firmware and drivers do on a server.
set -eu

# A boot has an id of its own; a container shares the kernel's, so a "reboot" would not show.
tr -d '\n' </proc/sys/kernel/random/uuid >/run/boot_id
echo >>/run/boot_id
chmod 0444 /run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id

# A test may ask for the unified layout of a newer host where this machine's own is v1 or hybrid.
# Without controllers (the kernel gives them to one hierarchy only), with the same paths.
if [ "${CONTAINER_HOST_CGROUP:-}" = v2 ] && [ ! -f /sys/fs/cgroup/cgroup.controllers ]; then
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
unset CONTAINER_HOST_CGROUP

# On cgroup v2 Docker gives the container its own tree read-only; systemd has to write to it.
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    mount -o remount,bind,rw /sys/fs/cgroup
fi

# Device nodes that can be opened and held, with the names and rights that NVIDIA's driver gives.
# Behind them is /dev/null (1, 3). /dev is made anew at each boot, so this is too.
gpus=${CONTAINER_HOST_GPUS:-0}
unset CONTAINER_HOST_GPUS
if [ "$gpus" -gt 0 ]; then
    index=0
    while [ "$index" -lt "$gpus" ]; do
        mknod -m 0666 "/dev/nvidia$index" c 1 3
        index=$((index + 1))
    done
    mknod -m 0666 /dev/nvidiactl c 1 3
    mknod -m 0666 /dev/nvidia-uvm c 1 3
fi

exec /lib/systemd/systemd
