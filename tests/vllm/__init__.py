"""vLLM itself, on the CPU, launched by `lowpass serve` and asked by the official client: `make test-vllm`."""
