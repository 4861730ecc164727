"""The pictures of README and docs, fresh from the gallery: python tests/app/docs_pictures.py

One pass of the gallery in a window of 1440 × 900, some of whose pictures go to docs/images: with 64 levels of each
colour, which nobody sees and which makes them smaller.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PySide6.QtGui import QImage

ROOT = Path(__file__).resolve().parents[2]
SIZE = "1440x900"
MOST_BYTES = 250_000
LEVELS = 64
PICTURES = {
    "window": "proved_bound_gap",
    "search": "proved_bound_gap_page",
    "variability": "noise_variability",
    "verdict": "violated_verdict",
    "compare": "compare_four_compare",
    "compare_memory": "compare_four_compare_memory",
    "compare_noise": "compare_noise_compare_variability",
    "graph": "noise_graph_picked",
    "instances": "benchmark_instances",
}


def write_small(source: Path, target: Path) -> None:
    """Write a picture with LEVELS levels of red, green and blue, as strongly compressed as PNG can be."""
    image = QImage(str(source)).convertToFormat(QImage.Format.Format_RGB888)
    width, height = image.width(), image.height()
    lines = np.frombuffer(image.constBits(), np.uint8).reshape(height, image.bytesPerLine())
    step = 255 / (LEVELS - 1)
    pixels = np.ascontiguousarray((np.round(lines[:, : 3 * width] / step) * step).round().astype(np.uint8))
    small = QImage(pixels.data, width, height, 3 * width, QImage.Format.Format_RGB888)
    small.save(str(target), "PNG", 0)  # type: ignore[call-overload]  # 0: the strongest compression


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="boundscope-docs-") as place:
        gallery = [sys.executable, str(Path(__file__).with_name("gallery.py")), place]
        made = subprocess.run([*gallery, "--theme", "light", "--scale", "1", "--size", SIZE], check=False)
        if made.returncode:
            return made.returncode
        for name, source in PICTURES.items():
            target = ROOT / "docs" / "images" / f"{name}.png"
            write_small(Path(place) / f"{source}_light_1x.png", target)
            if target.stat().st_size > MOST_BYTES:
                print(f"docs: {target.name} has {target.stat().st_size // 1000} kB", file=sys.stderr)
                return 1
            print(f"docs: {target.relative_to(ROOT)}, {target.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
