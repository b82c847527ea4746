"""Topiary: nodes that learn their neighbours from the arrival times of messages."""
