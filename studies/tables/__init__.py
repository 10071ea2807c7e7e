"""Studies of tables as the input of a conversion.

In: a folder of photographs. Out: rates of the converters and their ratio, as JSON.
Nothing here changes a converter.
"""
