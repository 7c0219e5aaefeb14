"""Replicas that need not start an interpreter and import a framework: forked from a process that did."""
