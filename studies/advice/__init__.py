"""Experiments about the advisor: are its predictions right?

In: published tests, or settings that are drawn by a seed. Out: a row with both figures.
Never here: a prediction that has seen the run it is compared with.
"""
