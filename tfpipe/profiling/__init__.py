"""What each stage of a pipeline costs, and which resource limits the pipeline.

In: a pipeline. Out: measured rates, CPU-seconds a stage, and the bottleneck in words.
Never here: a change of the pipeline or of its settings; that is the tuner's work.
"""
