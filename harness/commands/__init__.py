"""One module per verb of the command line, each with ``add_arguments(parser)`` and ``run(arguments) -> int``."""
