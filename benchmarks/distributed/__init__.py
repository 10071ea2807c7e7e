"""The ranks of a run: how they communicate, and what happens if one is lost.

In: the processes that horovodrun started. Out: ranks, their connections, a watch.
Never here: models; `ranks` is the only module that imports Horovod.
"""
