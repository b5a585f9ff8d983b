"""`python -m minirun` is `minirun`."""

from .cli import main

if __name__ == "__main__":
    main()
