"""What tokens of an engine on GPUs really cost: `python -m bench.gpu ENGINE`."""
