"""The ranks of a run: what they tell each other, and what happens if one is lost.

In: the processes that horovodrun started. Out: ranks, links, a watch over them.
Never here: models; `ranks` is the one module that imports Horovod.
"""
