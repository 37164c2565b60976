"""Stand-ins for what a test host cannot have: GPUs, a running vLLM, a fast SGLang."""
