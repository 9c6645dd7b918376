"""What a message can get wrong before it is a value: what is missing, unset, unknown, or beyond a message's limits.

Limits of the values themselves are the domain's (`domain/validation.py`); they are asked here only to name every
violation of a request at once. One module per noun, but for those whose requests are read in one step
(`convert/shared/reader.py`); each function raises InvalidArgumentError with everything that is wrong.
"""
