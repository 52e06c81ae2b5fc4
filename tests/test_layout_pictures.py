"""Each layout in each theme and size looks as it did when somebody looked at it, on the software adapter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from layout_pictures import STORED, Pictures, font, small
from PySide6.QtGui import QImage

from inspector.ui import theme
from inspector.ui.app import application

pytestmark = [pytest.mark.gpu, pytest.mark.qt]

FAR = 60
"""Of 255: a pixel is another one from here on."""
MOST_FAR = 0.03
"""The share of pixels that times, which differ from run to run, may change at this size."""
MOST_MEAN = 4.0


def pixels(image: QImage) -> npt.NDArray[np.int64]:
    rgb = image.convertToFormat(QImage.Format.Format_RGB32)
    raw = np.frombuffer(rgb.constBits(), np.uint8).reshape(rgb.height(), rgb.bytesPerLine() // 4, 4)
    return raw[:, : rgb.width(), :3].astype(np.int64)


@pytest.fixture
def pictures() -> Iterator[Pictures]:
    made = Pictures()
    yield made
    made.close()
    theme.apply(application(), "light", 1.0)


def test_every_layout_looks_as_it_did(pictures: Pictures) -> None:
    device = pictures.window.snapshot.device if pictures.window.snapshot is not None else None
    if device is None or not device.software:
        pytest.skip("the stored pictures are of the software adapter")
    if not (stored := {path.stem: QImage(str(path)) for path in STORED.glob("*.png")}):
        pytest.fail(f"there are no pictures in {STORED}")
    if next(iter(stored.values())).text("font") != font():
        pytest.skip(
            f"the stored pictures are in {next(iter(stored.values())).text('font')}, this is {font()}"
        )
    others = []
    for name, image in pictures.take():
        now, before = pixels(small(image)), pixels(stored.pop(name))
        if now.shape != before.shape:
            others.append(f"{name}: {now.shape[:2]} pixels, {before.shape[:2]} before")
            continue
        difference = np.abs(now - before).max(axis=2)
        far, mean = float((difference >= FAR).mean()), float(difference.mean())
        if far > MOST_FAR or mean > MOST_MEAN:
            others.append(f"{name}: {far:.1%} of the pixels are others, {mean:.1f} of 255 on average")
    assert not others, "\n".join(
        [
            *others,
            "Look at them: python tests/layout_pictures.py FOLDER; where they are right, --store keeps them.",
        ]
    )
    assert not stored, f"no layout makes these pictures: {sorted(stored)}"
