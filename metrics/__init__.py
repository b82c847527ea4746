"""Files to tables to a report. Knows run directories only, never processes."""
