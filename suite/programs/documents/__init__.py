"""The documents' bare calls: one file for each approach, with the name of its trainer."""
