"""Measures the cost of each stage and finds the resource that limits a pipeline.

In: a pipeline. Out: measured rates, CPU-seconds of each stage, the bottleneck in words.
Never here: a change of the pipeline or of its settings; that is the tuner's work.
"""
