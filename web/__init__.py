"""The page and its run time, as package data of the Python side: `importlib.resources.files` finds the folder."""
