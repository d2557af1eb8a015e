"""Processes of their own for what may hang or crash: `pool` is the gateway's side, `run` is the child."""
