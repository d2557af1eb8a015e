"""Small checkpoints for vLLM, made of the weights that the embedded engine ships: no model hub is asked.

This runs where vLLM is installed (it needs torch, gguf, tokenizers and safetensors); nothing of lowpass is imported.
"""
