"""The bare calls of the documents: a file for each approach, named as its trainer."""
