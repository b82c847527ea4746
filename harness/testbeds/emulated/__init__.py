"""The emulated testbed: Mininet hosts, the data plane between them, an sshd, and the certificate's probes.

``testbed`` joins the parts. ``plane`` is the data plane's interface, ``userspace`` its client and ``dataplane/`` the
processes behind it. ``probes``, ``introduction``, ``pace`` and ``certifier`` measure the idle network.
"""
