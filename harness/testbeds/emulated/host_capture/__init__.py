"""A second capture of sampled hosts, made by the kernel inside their namespaces: it checks the data plane's own.

``handle`` starts and stops the process, ``process`` writes the packets, ``ring`` receives them.
"""
