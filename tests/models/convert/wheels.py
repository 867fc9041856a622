"""Wheels that tests make, and a line of these wheels: an environment without the network."""

import hashlib
import zipfile
from pathlib import Path
from typing import Final

from vinery_serving.models.convert.checkpoint import Line

# Imported before an environment counts as whole.
_MODULES: Final = {
    "torch": ("torch",),
    "exporter": (
        *("transformers", "nncf", "openvino_tokenizers"),
        *("optimum", "optimum.exporters", "optimum.exporters.openvino", "optimum.commands"),
    ),
}


def write_wheels(folder: Path, exporter: str, version: str = "1.0") -> Line:
    """Write the wheels of a line, and return it. `exporter` is the code of `optimum-cli`."""
    folder.mkdir(exist_ok=True)
    _write(folder, "torch", version, {"torch/__init__.py": ""})
    files = {f"{name.replace('.', '/')}/__init__.py": "" for name in _MODULES["exporter"]}
    wheel = _write(
        folder, "exporter", version, {**files, "optimum/commands/optimum_cli.py": exporter}
    )
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Line("test", (f"exporter=={version} --hash=sha256:{digest}",), f"torch=={version}")


def _write(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path
