"""The command line, as ``python -m napari_saf``."""

from napari_saf.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
