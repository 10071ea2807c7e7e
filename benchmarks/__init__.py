"""Real training and real measurements of its input; a command line is one module.

In: a converted data set. Out: one JSON document a run, and pages over many of them.
Never here: private modules of tfpipe; a benchmark uses what its users can use.
"""

import os

# Both are read once, when TensorFlow or Keras is first imported. The models are written
# for the TensorFlow backend; TensorFlow's start-up messages would bury the results.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
