"""The lowpass gateway. Start reading at `pipeline.py`."""
