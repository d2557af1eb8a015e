"""Several gateway processes behind one socket. The first process starts, replaces and ends the others.

A worker runs the same program. It inherits the listening socket and one end of a message channel. If the channel
closes, the process at its other end has exited; a worker then exits at once. So no worker outlives the first process,
however that ends.
"""
