"""Needs of a training run, and its limits, computed before it is run.

In: a `Scenario`. Out: images a second, the binding resource, and what would pay.
Never here: measuring. Figures come from results, flags or the built-in tables.
"""
