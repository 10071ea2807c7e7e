"""Trains a linear model with JAX on the batches of a tfpipe pipeline.

    python examples/jax_training.py DIR [DTYPE]    DIR: a converted data set

DTYPE is uint8, the fewest bytes to copy to the device, where the step normalizes them;
or bfloat16, normalized by the pipeline. One process of several says its rank:
imagenet_train(..., rank=jax.process_index(), num_ranks=jax.process_count()).
"""

import sys

import jax
import jax.numpy as jnp

import tfpipe

SIZE = 32


def normalized(image):
    """Does on the device what the pipeline leaves to it: uint8 to zero mean."""
    if image.dtype != jnp.uint8:
        return image.astype(jnp.float32)
    normalize = tfpipe.Normalize()
    return (image - jnp.array(normalize.mean)) / jnp.array(normalize.std)


def mean_loss(weights, batch):
    image = normalized(batch["image"])
    logits = image.reshape(len(image), -1) @ weights
    chosen = jax.nn.log_softmax(logits)[jnp.arange(len(image)), batch["label"]]
    return -chosen.mean()


@jax.jit
def train_step(weights, batch):
    loss, gradient = jax.value_and_grad(mean_loss)(weights, batch)
    return weights - 1e-4 * gradient, loss


def main(data_dir, dtype="uint8"):
    pipeline = tfpipe.imagenet_train(
        data_dir, image_size=SIZE, batch_size=4, dtype=dtype
    )
    weights = jnp.zeros([SIZE * SIZE * 3, pipeline.num_classes])
    batches = pipeline.to_numpy(apply_device_ops=False)
    for epoch in range(2):  # every loop over the batches is the next epoch
        for batch in batches:
            weights, loss = train_step(weights, jax.device_put(batch))
        print(f"epoch {epoch}: {len(batches)} steps of {dtype}, loss {float(loss):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
