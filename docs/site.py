"""What mkdocs does not do by itself: pages from elsewhere in the repository, notebooks that were run, equations.

mkdocs calls the `on_…` functions (mkdocs.yml, `hooks`). README is the home page. A file of the repository that a page
links to becomes a page or a file under repository/, so that no link leaves the site. A notebook is run when the site
is built, and becomes a page with its figures. Equations become MathML, which browsers draw without a script.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

import latex2mathml.converter
import nbformat
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
HOME = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def address(path: PurePosixPath) -> str:
    """Where a file of the repository stands on the site."""
    if str(path) == "README.md":
        return "index.md"
    return str(path.relative_to("docs")) if path.parts[0] == "docs" else f"repository/{path}"


def target(source: PurePosixPath, link: str) -> PurePosixPath:
    """The file of the repository that `source` links to; a folder is its README, if it has one."""
    path = PurePosixPath(os.path.normpath(source.parent / link))
    if (ROOT / path).is_dir():
        pages = [path / "README.md", *(PurePosixPath(p.relative_to(ROOT)) for p in sorted((ROOT / path).glob("*.md")))]
        path = next((page for page in pages if (ROOT / page).is_file()), path)
    return path


def on_files(files: Files, config: Any) -> Files:
    """Adds what pages link to outside docs/, and the pages of notebooks."""
    todo = [PurePosixPath("docs") / file.src_uri for file in files.documentation_pages()]
    todo += [PurePosixPath(name) for name in HOME]
    seen: set[PurePosixPath] = set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.parts[0] != "docs":
            files.append(File.generated(config, address(path), abs_src_path=str(ROOT / path)))
        if path.suffix == ".md":
            for found in LINK.finditer(CODE.sub("", (ROOT / path).read_text(encoding="utf-8"))):
                linked = target(path, found[1])
                if (ROOT / linked).is_file():
                    todo.append(linked)
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
        text, pictures = run_notebook(Path(str(file.abs_src_path)))
        stem = file.src_uri.removesuffix(".ipynb")
        files.append(File.generated(config, f"{stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"{PurePosixPath(stem).parent}/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files of the repository become links of the site; equations become MathML."""
    uri = page.file.src_uri
    if uri.startswith("notebooks/"):
        return markdown
    here = PurePosixPath("README.md" if uri == "index.md" else "docs/" + uri)
    if uri.startswith("repository/"):
        here = PurePosixPath(uri.removeprefix("repository/"))

    def moved(found: re.Match[str]) -> str:
        place = os.path.relpath(address(target(here, found[1])), PurePosixPath(address(here)).parent)
        return place + (found[2] or "")

    parts = CODE.split(markdown)
    return "".join(part if CODE.fullmatch(part) else equations(LINK.sub(moved, part)) for part in parts)


def equations(text: str) -> str:
    """$$…$$ and $…$ as MathML."""
    wide = '\n<div style="overflow-x: auto">{}</div>\n'.format  # on a narrow screen it scrolls by itself
    text = re.sub(r"\$\$(.+?)\$\$", lambda found: wide(mathml(found[1], "block")), text, flags=re.DOTALL)
    inline = "<span>{}</span>".format  # a line that begins with <math> would be a paragraph of its own
    return re.sub(
        r"(?<![\w\\$])\$(?! )([^$]+?)(?<! )\$(?![\w$])", lambda found: inline(mathml(found[1], "inline")), text
    )


def mathml(latex: str, display: str) -> str:
    return latex2mathml.converter.convert(" ".join(latex.split()), display=display)


def run_notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook after running it, and its pictures by name. A cell that fails fails the build."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    lines: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
        lines += [f"```python\n{cell.source}\n```" if cell.cell_type == "code" else cell.source]
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures)}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                lines.append(f"![what the cell above draws]({name})")
            elif "text/html" in data:
                table = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.DOTALL)
                lines.append(table.replace(' border="1" class="dataframe"', ""))  # the site's own tables scroll
            elif str(data.get("text/plain", "")).strip():
                lines.append(f"``` {{ .text .printed }}\n{data['text/plain'].rstrip()}\n```")
    return "\n\n".join(lines) + "\n", pictures
