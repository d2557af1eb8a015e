"""lowpass: the gateway. `pipeline.py` is the table of contents."""
