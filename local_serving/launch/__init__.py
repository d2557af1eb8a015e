"""Local engines as processes: how each is started, whether it serves, started again, ended, and nothing left behind."""
