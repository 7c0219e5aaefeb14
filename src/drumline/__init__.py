"""One spec, one command: distributed training here, on SSH hosts, on Kubernetes."""

__version__ = "0.1.0"
