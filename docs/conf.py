"""How Sphinx makes the site: ``make docs``."""

# https://www.sphinx-doc.org/en/master/usage/configuration.html
import importlib.metadata
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "napari-saf"
author = "The napari-saf developers"
copyright = author  # noqa: A001 - the name that Sphinx reads
version = release = importlib.metadata.version("napari-saf")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "docstrings",
    "method_parameters",
    "python_reference",
    "mathml",
]
exclude_patterns = ["_build", "reference/names.rst"]
templates_path = ["_templates"]
suppress_warnings = [
    "ref.python",  # names of shapes, such as n_nodes, are attributes of several classes
    "toc.not_readable",  # pages to come have their place; one that is in no list is still an error
]

# https://myst-parser.readthedocs.io/en/latest/configuration.html
myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autosummary_generate = ["reference/names.rst"]
autodoc_typehints = "none"  # the docstrings name types, shapes and ranges
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "napari_sphinx_theme"
html_title = "napari-saf"
html_theme_options = {
    "check_switcher": False,  # the list of versions is made where the sites are published
    "footer_end": [],
    "footer_start": ["napari-saf-footer"],
    "header_links_before_dropdown": 7,
    "navbar_end": ["version-switcher", "navbar-icon-links"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "switcher": {
        "json_url": "/napari-saf/versions.json",  # of the host, where the site is in /napari-saf
        "version_match": os.environ.get("DOCS_VERSION", "main"),
    },
}
# No list of neighbours beside pages that have none.
html_sidebars = {
    name: [] for name in ("index", "quick_start", "choose", "methods", "file_formats", "limits")
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
