"""Trains a small Keras model on TFRecords of another tool, as they are.

    python examples/own_tfrecords.py FOLDER [NUM_EPOCHS]

Change the pattern, the keys and the numbers below for your records; a wrong key
is an error that lists the keys there are. Nothing is written but the places of the
records, in FOLDER/.tfpipe, so that the shards are scanned only once.
"""

import sys

import keras
import tensorflow as tf

import tfpipe

FILES = "**/*.tfrecord"
NUM_CLASSES = 3
PARSE = tfpipe.Parse(
    image_key="img",  # JPEG or PNG
    label_key="y",  # one int64
    label_base=0,  # the smallest label in the records
    extra={"name": tf.string},  # delivered with every batch
)


def main(folder, num_epochs=1):
    source = tfpipe.TFRecordSource(folder, files=FILES, batch_size=8)
    pipeline = tfpipe.imagenet_train(source, parse=PARSE, image_size=32)
    print(pipeline)
    model = keras.Sequential(
        [
            keras.layers.Input([32, 32, 3]),
            keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(NUM_CLASSES),
        ]
    )
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
    return model.fit(pipeline.for_keras(), epochs=num_epochs)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
