"""The host's GPUs: NVML first, nvidia-smi second. Knows no engine."""
