"""Several gateway processes behind one socket: the first one starts the others, replaces those that die, ends them all.

A worker is this program once more. It inherits the listening socket and one end of a channel that carries messages both
ways. When a channel ends, the process at its other end is gone; a worker then ends at once. So none outlives the first
process, however that ended.
"""
