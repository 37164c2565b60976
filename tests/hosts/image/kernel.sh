#!/bin/sh
# Runs in a container of the image with torch: what a build host has. The list is that of
# roles/sgl_kernel/building.py, which installs what is missing.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends build-essential git ccache python3-dev python3-venv \
    libnuma-dev libibverbs-dev
apt-get clean
rm -rf /var/lib/apt/lists/* /tmp/* /var/tmp/*
