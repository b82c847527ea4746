"""Experiments of Shadow (``shadow.yaml``): what their files say, and the network that they ask for.

``texts`` reads YAML, ``form`` knows the keys, ``network`` makes the matrices. ``topologies.importers.shadow`` makes an
underlay of it, and ``harness.experiment.shadow`` an experiment.

Source: Shadow's configuration specification, docs/shadow_config_spec.md of github.com/shadow/shadow.
"""
