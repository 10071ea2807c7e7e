"""The flag of every command that may read the images a data set is made of.

It is not required here: a command that cannot do without marks it so itself.
"""

from absl import flags

INPUT_DIR = flags.DEFINE_string(
    "input_dir", None, "Folder with the images as they came; see the layout above."
)
