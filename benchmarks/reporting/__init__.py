"""Reports for people and programs: JSON documents, gates, pages, charts.

In: the figures of runs. Out: JSON, HTML, pictures, and the pass or fail of gates.
Never here: measuring.
"""
