"""The userspace data plane: one TUN device per host, and one process that forwards between them.

``forwarder`` handles frames, and ``process`` is the loop around it. ``monitor`` reports on it and ``writer`` writes
captures to disk, each in a separate process. ``userspace`` is the handle for a testbed.
"""
