"""The engine that is used if neither the spec nor the command line names one."""

DEFAULT_ENGINE = "local"
