"""Graphs of functions in our dtypes: integer codes and the formats' names, for compilers that know stock dtypes alone."""
