"""WHAT IT COMES TO: a file's name and what was typed beside it, read into the plan that they make together.

Light, and without click: a launch waits for all of this.
"""
