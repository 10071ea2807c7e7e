"""Helpers that run beside a training loop.

In: a pipeline and the loop's steps. Out: waiting times, saved states, checks, figures.
Never here: models and optimizers; Keras is imported here and nowhere else in tfpipe.
"""
