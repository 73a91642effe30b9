"""How Sphinx builds these pages: ``python -m sphinx -W --keep-going docs site``."""

from __future__ import annotations

from pytest_jaxcompile import __version__

project = "pytest-jaxcompile"
author = "the authors of pytest-jaxcompile"
copyright = author  # noqa: A001
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["assets"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "__init__, __new__"}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"pytest-jaxcompile {version}"
html_copy_source = False
html_show_sphinx = False
