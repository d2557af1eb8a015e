"""How well routing does on public outcomes of models: `lowpass bench routing`."""
