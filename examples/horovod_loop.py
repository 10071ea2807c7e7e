"""A training loop of your own on several ranks, with an exact evaluation.

horovodrun -np 2 python examples/horovod_loop.py records
"""

import sys

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

import tfpipe


def main(data_dir: str, num_epochs: int = 2) -> None:
    hvd.init()
    options = {"image_size": 32, "rank": hvd.rank(), "num_ranks": hvd.size()}
    train = tfpipe.imagenet_train(data_dir, batch_size=4, **options)
    val = tfpipe.imagenet_eval(data_dir, batch_size=4, **options)
    classes = train.source.index.num_classes
    layers = [keras.layers.Flatten(), keras.layers.Dense(classes)]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers])
    num_steps = num_epochs * train.steps_per_epoch  # the same on every rank
    rate = keras.optimizers.schedules.CosineDecay(0.001 * hvd.size(), num_steps)
    optimizer = keras.optimizers.SGD(rate)
    hvd.broadcast_variables([v.value for v in model.variables], root_rank=0)

    @tf.function
    def train_step(batch):
        batch = train.on_device(batch)  # uint8 -> normalized floats, on the device
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            logits = model(batch["image"], training=True)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            total = loss(batch["label"], logits)
        # Horovod needs the tf.Variable inside of a variable of Keras 3.
        gradients = tape.gradient(total, [v.value for v in model.trainable_variables])
        optimizer.apply(gradients, model.trainable_variables)

    @tf.function
    def count(batch):
        logits = model(val.on_device(batch)["image"], training=False)
        right = tf.argmax(logits, 1, tf.int32) == batch["label"]
        mask = batch["mask"]  # 0 for a row of padding
        return tf.reduce_sum([mask * tf.cast(right, tf.float32), mask], 1)

    optimizer.build(model.trainable_variables)
    for epoch in range(num_epochs):
        for batch in train.build(epoch=epoch):
            train_step(batch)
        totals = hvd.allreduce(sum(count(batch) for batch in val.build()), op=hvd.Sum)
        if hvd.rank() == 0:
            print(
                f"epoch {epoch}: {totals[0]:.0f} of {totals[1]:.0f} right", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
