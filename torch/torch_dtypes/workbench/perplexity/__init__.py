"""Measure the perplexity of a causal language model in several formats.

``models`` loads a model and splits a text into its tokens. ``windows`` scores the tokens.
``recipes`` builds the rules of a format. ``study`` runs the cells, each a format and a recipe, and
keeps what is done. ``results`` has the results, which ``report`` shows.
"""
