"""Trains a small Keras model on own photos; evaluates it, and names its predictions.

    python -m converters.folder --input_dir=photos --output_dir=records \
        --validation_fraction=0.2
    python examples/keras_own_photos.py records

`photos` holds a directory for every class, with its images.
"""

import sys

import keras

import tfpipe

IMAGE_SIZE = 96


def main(data_dir: str, num_epochs: int = 5) -> None:
    sizes = {"image_size": IMAGE_SIZE, "batch_size": 8}
    train = tfpipe.imagenet_train(data_dir, **sizes)
    val = tfpipe.imagenet_eval(data_dir, **sizes)
    classes = [name for _, name in train.source.index.classes]
    model = keras.Sequential(
        [
            keras.Input((IMAGE_SIZE, IMAGE_SIZE, 3)),
            keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(len(classes), activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

    # Every epoch of Keras is the next epoch of the data: a new order, new crops.
    model.fit(
        train.for_keras(), epochs=num_epochs, validation_data=val.for_keras(), verbose=2
    )

    # Every photo counts once: the padding of the last batch are left out.
    results = model.evaluate(val.for_keras(), return_dict=True, verbose=0)
    print(f"accuracy {results['accuracy']:.3f}, loss {results['loss']:.3f}")

    shares = model.predict(val.for_keras(), verbose=0)
    for name, share in zip(val.record_names(), shares, strict=True):
        print(f"{name}: {classes[share.argmax()]} ({share.max():.0%})")
    model.save("own_photos.keras")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
