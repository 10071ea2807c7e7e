"""Pictures: the format of an image file, its pixels in 8 bits, and which way is up.

In: the bytes of one image file. Out: the name of its format, an image of Pillow, its
orientation. Converters and `pipeline.preprocess` share these rules.
Never here: a policy, a record, TensorFlow.
"""
