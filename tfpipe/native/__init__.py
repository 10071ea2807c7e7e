"""The native crop op: decode, crop, resize, mirror and normalize in one C++ kernel.

In: C++ sources, a compiler, TensorFlow and Pillow. Out: the op, and a JPEG rewriter.
Never here: compiling without being asked; TensorFlow in `libraries`.
"""
