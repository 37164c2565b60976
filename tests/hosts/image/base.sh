#!/bin/sh
# Runs on the build machine as mmdebstrap's customize hook: $1 is the root folder of the new system.
# Turns a plain Debian into a server that boots in a container and is reached over ssh.
set -eu
root=$1
here=$(dirname "$0")

install -m 0755 "$here/boot.sh" "$root/usr/local/sbin/container-host-boot"

# Only an ed25519 key, made at the first boot: every host has its own, and the boot does not wait for RSA.
rm -f "$root"/etc/ssh/ssh_host_*
cat >"$root/etc/ssh/sshd_config.d/host.conf" <<'CONF'
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
# One file for every user: the key that the lifecycle hands in.
AuthorizedKeysFile /etc/ssh/authorized_keys .ssh/authorized_keys
# A fleet's worth of tests opens many connections at once.
MaxStartups 100
MaxSessions 100
CONF
mkdir -p "$root/etc/systemd/system/ssh.service.d"
cat >"$root/etc/systemd/system/ssh.service.d/key.conf" <<'CONF'
[Service]
ExecStartPre=
ExecStartPre=/bin/sh -c 'test -s /etc/ssh/ssh_host_ed25519_key || ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key'
ExecStartPre=/usr/sbin/sshd -t
CONF

# What has no meaning without hardware or a console, and what would run on its own during a test.
for unit in console-getty.service getty.target getty-static.service systemd-udevd.service \
    systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
    systemd-modules-load.service sys-kernel-debug.mount sys-kernel-tracing.mount \
    dev-hugepages.mount dev-mqueue.mount apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

# The journal of the last boot is still there after a reboot, as on a server.
mkdir -p "$root/var/log/journal"
: >"$root/etc/machine-id"
# Docker writes these three itself.
rm -f "$root/etc/hostname" "$root/etc/resolv.conf"

# The cloud images' second way in: an ordinary user who may use sudo.
chroot "$root" useradd --create-home --shell /bin/bash --groups sudo debian
echo 'debian ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/debian"
chmod 0440 "$root/etc/sudoers.d/debian"

# ssh gives a non-interactive command no locale: Python must not fall back to ASCII for its output.
echo 'LANG=C.UTF-8' >"$root/etc/default/locale"
echo 'LANG=C.UTF-8' >>"$root/etc/environment"
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/var/cache/apt/*.bin
