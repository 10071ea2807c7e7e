"""The native crop op: decode, crop, resize, mirror and normalize in one C++ kernel.

In: C++ sources, a compiler, TensorFlow and Pillow. Out: the op, a JPEG rewriter, and
the entry points of JPEGs. Never here: compiling without being asked; TensorFlow in the
modules that the converters use.
"""
