"""Settings of the site. Build it with `python -m sphinx docs build/site` and the extra `docs`; no network is needed."""

import os
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]
# The tutorials run in separate kernels. With this path they find the package even if it is not installed.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
# Tutorials about real models use a small substitute, even after a download, unless this variable names a folder.
os.environ.setdefault("NUMPY_ATTENTION_CACHE", str(ROOT / "build" / "no models"))

import numpy_attention  # noqa: E402

project = "numpy_attention"
author = "The numpy_attention authors"
project_copyright = "2026, " + author
version = release = numpy_attention.__version__
language = "en"

extensions = [
    "myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "pages", "notebooks", "docstrings", "typography", "diagrams",
]
exclude_patterns = ["_ext", "notes", "notebooks", "**/.ipynb_checkpoints"]

# Notebooks run during the build; outputs are cached until the code changes. An error in a notebook fails the build.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 900  # the longest training cell takes half a minute, but the machine may be busy
nb_merge_streams = True
nb_output_stderr = "show"
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

# Math without a network: one file of a Python package with MathJax is copied (see _ext/pages.py).
mathjax_path = "mathjax/tex-svg.js"
mathjax3_config = {"tex": {"tags": "none"}, "svg": {"fontCache": "local"}, "options": {"enableMenu": False}}
MATHJAX = {
    Path(str(file)).name: file.locate()
    for file in metadata.files("django-static-mathjax") or []
    if str(file).endswith(("mathjax/es5/tex-svg.js", "static/mathjax/LICENSE"))
}

html_theme = "furo"
html_title = "numpy_attention"
html_static_path = ["_static"]
html_css_files = ["book.css", "print.css"]
html_js_files = ["lines.js", "print.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
pygments_dark_style = "github-dark"
