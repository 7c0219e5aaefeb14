"""``python -m drumline`` is the command ``drumline``."""

from drumline.cli import main

main()
