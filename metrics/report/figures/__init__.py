"""The report's figures: each takes a finished run and draws one answer.

A figure never computes a new measure: it shows columns of the tables, so that every curve can be checked with a query.
"""
