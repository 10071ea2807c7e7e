"""Fine-tunes a model of keras.applications on a fifth less than the training records.

    python examples/fine_tune_keras.py DIR MobileNetV2 imagenet

DIR is a converted data set. A fifth of its training records is for validation. The
pixels equal the pixels of the model's own `preprocess_input`. "none" in place of
"imagenet" begins with random weights, without a download.
"""

import sys

import keras

import tfpipe


def main(data_dir: str, name: str, weights: str, image_size: str = "") -> None:
    options = {
        "recipe": tfpipe.recipes.keras(name),
        "image_size": int(image_size) if image_size else None,  # that of the model
        "validation_fraction": 0.2,
        "batch_size": 4,
    }
    train = tfpipe.imagenet_train(data_dir, **options)
    val = tfpipe.imagenet_eval(data_dir, **options)
    images, _ = train.for_keras().element_spec
    body = getattr(keras.applications, name)(
        include_top=False,
        weights=None if weights == "none" else weights,
        input_shape=images.shape[1:],
        pooling="avg",
    )
    head = keras.layers.Dense(train.num_classes, activation="softmax")
    model = keras.Sequential([body, head])

    # The new head learns first, then all layers learn slowly.
    for is_whole, rate in ((False, 1e-3), (True, 1e-5)):
        body.trainable = is_whole
        model.compile(
            keras.optimizers.Adam(rate),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
        model.fit(train.for_keras(), validation_data=val.for_keras(), verbose=2)

    shares = model.predict(val.for_keras(), verbose=0)
    for file, share in zip(val.record_names(), shares, strict=True):
        print(f"{file}: {val.class_names[share.argmax()]} ({share.max():.0%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
