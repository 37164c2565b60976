#!/bin/bash
# A systemd host on a machine whose own init is something else: systemd as PID 1 of its own
# namespaces, over this machine's root file system, with its GPUs, sshd on 127.0.0.1:2222.
#   namespaces.sh install    unpack the kit's Debian packages, write configuration and keys
#   namespaces.sh boot       start; waits for sshd
#   namespaces.sh reboot     a power cut (PID 1 is killed), then boot
# KIT is the folder that `python -m tests.gpu.kit` made (default /srv/kit). Root only. It changes
# the machine's /usr and /etc: for a machine that is thrown away afterwards.
set -euo pipefail
kit=${KIT:-/srv/kit}
group=/sys/fs/cgroup/gpu-host

install_packages() {
	mkdir -p "$kit/tree"
	for package in "$kit"/debs/*.deb; do dpkg -x "$package" "$kit/tree"; done
	# The root file system has /bin -> /usr/bin; older packages bring /bin itself.
	for top in bin sbin lib; do
		[ -d "$kit/tree/$top" ] || continue
		mkdir -p "$kit/tree/usr/$top"
		cp -a "$kit/tree/$top/." "$kit/tree/usr/$top/"
		rm -rf "${kit:?}/tree/$top"
	done
	# /lib64 is the machine's own; a page's link may lead nowhere, which cp does not take.
	rm -rf "$kit/tree/lib64" "$kit/tree/usr/share/doc" "$kit/tree/usr/share/man"
	cp -a --update=none "$kit/tree/." /
	for name in messagebus sshd; do
		getent passwd $name > /dev/null || useradd --system --no-create-home --shell /usr/sbin/nologin $name
	done
	getent group systemd-journal > /dev/null || groupadd --system systemd-journal
	printf '%s\n' /usr/local/nvidia/lib64 /usr/local/nvidia/lib > /etc/ld.so.conf.d/nvidia.conf
	ldconfig
	[ -e /usr/bin/nvidia-smi ] || ln -s /usr/local/nvidia/bin/nvidia-smi /usr/bin/nvidia-smi
}

configure() {
	mkdir -p /etc/ssh /etc/systemd/system/multi-user.target.wants
	install -d -m 700 /root/.ssh
	for key in /etc/ssh/ssh_host_ed25519_key "$kit/key"; do
		[ -e "$key" ] || ssh-keygen -q -t ed25519 -N '' -f "$key"
	done
	cat "$kit/key.pub" >> /root/.ssh/authorized_keys
	chmod 600 /root/.ssh/authorized_keys
	awk '{print "[127.0.0.1]:2222", $1, $2}' /etc/ssh/ssh_host_ed25519_key.pub > "$kit/known_hosts"
	cat > /etc/ssh/sshd_config <<-'END'
		Port 2222
		ListenAddress 127.0.0.1
		HostKey /etc/ssh/ssh_host_ed25519_key
		PermitRootLogin prohibit-password
		PasswordAuthentication no
		UsePAM no
		MaxSessions 50
		Subsystem sftp /usr/lib/openssh/sftp-server
	END
	cat > /etc/systemd/system/ssh.service <<-'END'
		[Service]
		RuntimeDirectory=sshd
		ExecStart=/usr/sbin/sshd -D
		[Install]
		WantedBy=multi-user.target
	END
	ln -sf ../ssh.service /etc/systemd/system/multi-user.target.wants/ssh.service
	# Devices, the network, terminals and the clock belong to the machine outside.
	for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
		systemd-udev-trigger.service systemd-networkd.service systemd-networkd.socket \
		systemd-resolved.service systemd-timesyncd.service systemd-remount-fs.service \
		systemd-sysctl.service systemd-modules-load.service systemd-logind.service \
		systemd-firstboot.service getty.target console-getty.service getty@.service \
		apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
		fstrim.timer sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount \
		dev-mqueue.mount; do
		ln -sf /dev/null "/etc/systemd/system/$unit"
	done
	ln -sf /usr/lib/systemd/system/multi-user.target /etc/systemd/system/default.target
	[ -s /etc/machine-id ] || tr -d - < /proc/sys/kernel/random/uuid > /etc/machine-id
	cat > "$kit/init.sh" <<-'END'
		#!/bin/bash
		set -e
		mount --make-rprivate /
		mount -t proc proc /proc
		umount -l /sys/fs/cgroup
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		mount -t tmpfs -o mode=755 tmpfs /run
		mkdir -p /run/lock
		exec env -i container=lxc TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			/usr/lib/systemd/systemd --system --show-status=0 --log-target=console
	END
}

boot() {
	mkdir -p "$group"
	setsid bash -c "echo \$\$ > $group/cgroup.procs
		exec unshare --pid --mount --uts --ipc --cgroup --fork --kill-child bash $kit/init.sh" \
		> "$kit/systemd.log" 2>&1 < /dev/null &
	echo $! > "$kit/init.pid"
	for _ in $(seq 60); do
		sleep 0.5
		(echo > /dev/tcp/127.0.0.1/2222) 2> /dev/null && return
	done
	tail -20 "$kit/systemd.log" >&2
	echo "sshd does not answer 30 s after the boot: $kit/systemd.log says why" >&2
	exit 1
}

case ${1:-} in
install) install_packages; configure ;;
boot) boot ;;
reboot)
	# By parentage: a search by name would find whoever types the name.
	pkill -KILL -P "$(cat "$kit/init.pid")"
	sleep 1
	boot
	;;
*) sed -n '2,7s/^# //p' "$0" >&2; exit 2 ;;
esac
