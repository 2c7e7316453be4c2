"""``python -m memscope``, and the command ``memscope``: little is loaded before Ctrl+C is ours."""

import sys


def main() -> int:
    """Run the command line; its exit code."""
    try:
        from memscope.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
