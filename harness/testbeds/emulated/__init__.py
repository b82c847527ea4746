"""The emulated testbed: sandbox, Mininet hosts, data planes, fidelity probes."""
