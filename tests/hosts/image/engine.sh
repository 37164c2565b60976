#!/bin/sh
# Runs in a container of the python image, with this folder at /build: adds a tiny model.
set -eu

# One thread: on a machine that is busy, several wait for each other far longer than they work.
OMP_NUM_THREADS=1 python3 /build/make_model.py /models/tiny-qwen3
rm -rf /root/.cache /tmp/*
