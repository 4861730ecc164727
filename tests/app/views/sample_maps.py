"""Feature maps for the tests of the variability view: a convolution with every kind of element, and a vector."""

from __future__ import annotations

import numpy as np

from app.views import sample_noise
from boundscope.protocol import Event, LayerMap, VariabilityResult

CONV, VECTOR = sample_noise.LAYERS[0][0], sample_noise.LAYERS[6][0]
CHANNELS, HEIGHT, WIDTH = 12, 6, 5


def conv_bits() -> np.ndarray:
    """[channels, height, width]: channel c has about 24 − c bits."""
    bits = np.empty((CHANNELS, HEIGHT, WIDTH), np.float32)
    bits[:] = 24.0 - np.arange(CHANNELS, dtype=np.float32)[:, None, None]
    bits += np.linspace(-0.5, 0.5, HEIGHT * WIDTH, dtype=np.float32).reshape(HEIGHT, WIDTH)
    return bits


def maps() -> tuple[LayerMap, ...]:
    bits = conv_bits()
    kinds = np.zeros(bits.shape, np.int8)
    kinds[3, 0, 0], kinds[3, 0, 1], kinds[4, 2, 2] = 1, 3, 4
    bits[kinds != 0] = np.nan
    conv = LayerMap(
        layer=CONV,
        channels=tuple(range(CHANNELS)),
        of_channels=CHANNELS,
        height=HEIGHT,
        width=WIDTH,
        block=1,
        bits=bits.astype("<f4").tobytes(),
        kinds=kinds.tobytes(),
    )
    vector = LayerMap(
        layer=VECTOR,
        channels=(0,),
        of_channels=1,
        height=1,
        width=40,
        block=1,
        bits=np.linspace(10, 20, 40).astype("<f4").tobytes(),
        kinds=bytes(40),
    )
    return conv, vector


def finished_events() -> list[tuple[int, Event]]:
    """As `sample_noise.finished_events`, with the maps of two layers before the result."""
    events = sample_noise.finished_events()
    place = next(i for i, (_, event) in enumerate(events) if isinstance(event, VariabilityResult))
    return [*events[:place], *((0, each) for each in maps()), *events[place:]]
