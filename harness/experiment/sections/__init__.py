"""The sections of an experiment file: their types, with the text of docs/experiment-spec.md below each field.

``underlay``, ``faults``, ``workload`` and ``peer`` have the sections about these subjects, ``values`` the types of
numbers and names that several sections have. The other sections and the whole are in ``harness.experiment.form``.
"""
