"""Plot parts that views share: scales, curves, axes, the cursor. Data are drawn in pixel coordinates."""
