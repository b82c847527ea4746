"""Captures made by the kernel inside hosts' namespaces, at their devices.

One of sampled hosts checks the userspace data plane's own capture. One of all hosts is the kernel data plane's capture.

``handle`` starts and stops the process, ``process`` writes the packets, ``ring`` receives them.
"""
