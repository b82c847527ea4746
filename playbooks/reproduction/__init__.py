"""The pages of the reproduced papers in ``docs/reproduction``: part of this repository, not of the installed packages.

``papers`` reads the list of papers and their studies, ``publishing`` copies the record of a finished sweep to its
place, ``pages`` writes the pages from these records and the study files, and ``readings`` one of their tables.
``mutations`` checks claims by changes of the protocols. ``python -m playbooks.reproduction`` is the command.
"""
