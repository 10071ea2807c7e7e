"""Stages: each turns a dataset into another, in the order of the data.

In: a `tf.data.Dataset`. Out: a `tf.data.Dataset`.
Never here: knowledge of one data set or model; the caller chooses which ops run.
"""
