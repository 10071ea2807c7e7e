"""Trains a small PyTorch model on the batches of a tfpipe pipeline.

    python examples/torch_dataset.py DIR [NUM_EPOCHS]    DIR: a converted data set
    torchrun --nproc-per-node=2 examples/torch_dataset.py DIR

tf.data reads and decodes in threads of its own, so the DataLoader needs no worker
processes (num_workers=0): each of them would load TensorFlow and read every record.
"""

import sys

import torch

import tfpipe


class PipelineDataset(torch.utils.data.IterableDataset):
    """Batches of a pipeline as tensors; every loop is the next epoch."""

    def __init__(self, pipeline):
        # PyTorch wants memory for writing. The training step normalizes.
        self.batches = pipeline.to_numpy(writable=True, apply_device_ops=False)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for batch in self.batches:
            # A view: the channels come first, the memory is PyTorch's channels_last.
            image = torch.from_numpy(batch["image"]).permute(0, 3, 1, 2)
            yield image, torch.from_numpy(batch["label"]).long()


def main(data_dir, num_epochs=1):
    rank, num_ranks = 0, 1
    if torch.distributed.is_torchelastic_launched():  # by torchrun
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
        num_ranks = torch.distributed.get_world_size()
    pipeline = tfpipe.imagenet_train(
        data_dir, image_size=32, batch_size=4, rank=rank, num_ranks=num_ranks
    )
    data = torch.utils.data.DataLoader(PipelineDataset(pipeline), batch_size=None)
    body = torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten()
    model = torch.nn.Sequential(*body, torch.nn.Linear(8, pipeline.num_classes))
    if num_ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(int(num_epochs)):
        for image, label in data:
            loss = torch.nn.functional.cross_entropy(model(image / 255 - 0.5), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank} epoch {epoch}: {len(data)} steps, loss {loss.item():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
