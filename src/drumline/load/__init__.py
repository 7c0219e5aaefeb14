"""WHAT IT COMES TO: a file's name and the options of the command line, read into the plan that they make together."""
