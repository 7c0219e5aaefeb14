"""WHAT WAS ASKED: the spec as a user wrote it, read once, every problem with its line.

Here live the types of ``drumline.yml`` and its reader. Nothing here knows who will run or where.
"""
