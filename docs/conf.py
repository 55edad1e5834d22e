"""Sphinx settings: MyST and Furo; the package generate makes the generated parts of the pages."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402 (found by the line above)

project = "tf-distribute-conformance"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "recorded"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_copyright = False


def setup(app):
    app.connect("builder-inited", lambda _: generate.reference.write_claims())
    app.connect("source-read", expand)
    app.connect("build-finished", write_pages)


def expand(_app, _docname, source):
    source[0] = generate.expanded(source[0])


def write_pages(app, error):
    if error is None and app.builder.format == "html":
        generate.recorded.write_pages(Path(app.outdir) / "_static")
        generate.matrix.write_site(Path(app.outdir))
