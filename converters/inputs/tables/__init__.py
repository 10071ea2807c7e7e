"""Tables with an image and a label in each row, as images by split and class.

In: CSV, JSON lines, Parquet, SQLite, PostgreSQL or MySQL, and names of columns.
Out: places of image bytes with names and classes, and a Parquet file of other columns.
No table is changed, nothing is downloaded for DuckDB, and no image is opened.
"""
