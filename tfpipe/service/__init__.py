"""Service: stages that other processes or hosts do, through a tf.data service.

In: a source, stages, and the address of a service. Out: their elements, each once an
epoch. Never here: the servers; `benchmarks.service` starts them.
"""
