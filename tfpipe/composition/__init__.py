"""From the ops of a preset to the stages of its pipeline.

In: a source, ops, and what the user asked for. Out: a `Pipeline` that knows its paths.
Never here: which ops a recipe has, and how a stage works.
"""
