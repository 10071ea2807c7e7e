"""The ranks of a run: their communication, and the loss of a rank.

In: the processes of horovodrun. Out: ranks, their connections, a watch.
Never here: models; `ranks` is the only module with Horovod.
"""
