"""What stands beside a training loop: how far its input is from holding a step back.

In: a pipeline and a training step. Out: figures, and a sentence about them. Nothing
here is imported by `tfpipe`'s other modules.
"""
