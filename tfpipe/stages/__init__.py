"""Stages: each turns a dataset into another, in the order of the data.

In: a `tf.data.Dataset`. Out: a `tf.data.Dataset`.
Never here: knowledge of one data set or model; which ops run is the caller's choice.
"""
