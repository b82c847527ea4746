"""Data planes: what carries packets between the hosts of an emulated network, and delays, drops and captures them.

``plane`` has the interface and its values, ``description`` what a plane says of itself, and ``registry`` the planes by
name; each plane is a package. A testbed names the plane that it uses (``harness.testbeds.description``). ``pcapng`` has
the blocks of capture files, for everything that captures.
"""
