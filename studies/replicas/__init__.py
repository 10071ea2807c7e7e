"""The study of distinct copies: do they share bytes, and what do they cost?

In: a data set, or drawn images. Out: shares of equal blocks, ratios, rates.
Never here: making a copy; the command converters.replicate does it in its own process.
"""
