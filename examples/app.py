"""The example application of the package. `fiveways serve --app fiveways.demo.app:app` serves it anywhere.

fiveways serve --app examples.app:app                            or: make serve
"""

from fiveways.demo.app import app

if __name__ == "__main__":
    print(__doc__, *app.methods, sep="\n")
