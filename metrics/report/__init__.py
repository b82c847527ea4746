"""The report of a run: figures as SVG, and one HTML page that opens without a network (``metrics.report.report``)."""
