"""Load a plan from a spec file and the options of the command line."""
