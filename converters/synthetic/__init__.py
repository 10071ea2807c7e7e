"""Drawn images that cost what photographs cost: an ImageNet-like tree without download.

In: a seed and numbers. Out: JPEG files, the same for the same seed.
Never here: photographs, network.
"""
