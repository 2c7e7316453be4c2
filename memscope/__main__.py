"""``python -m memscope`` and the command ``memscope``. Imports little before Ctrl+C is handled."""

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        from memscope.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
