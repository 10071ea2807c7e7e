"""Benchmarks that feed Horovod training from tfpipe; a command line is one module."""

import os

# Both are read once, when TensorFlow or Keras is first imported. The models are written
# for the TensorFlow backend; TensorFlow's start-up messages would bury the results.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
