"""The userspace data plane: one TUN device a host, one process that forwards between them.

``forwarder`` is what happens to a frame, ``process`` is the loop around it, ``monitor`` reports on it and ``writer``
puts captures on disk, each a process of its own; ``userspace`` is the handle by which a testbed holds them.
"""
