"""The shared parts of the tests: data, servers, processes and faults.

`data`: images, tables, shards and results. `servers`: stores, databases, browsers and
clusters on this host. `processes`: ranks and other programs. `faults`: clocks, delays
and damage.
"""
