"""The engine of a spec that names none."""

DEFAULT_ENGINE = "local"
