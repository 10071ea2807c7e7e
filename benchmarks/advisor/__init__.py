"""What a training run needs, and what holds it back, computed before it is run.

In: a `Scenario`. Out: images a second, the binding resource, and what would pay.
Never here: measuring. Figures come from results, flags or the built-in tables.
"""
