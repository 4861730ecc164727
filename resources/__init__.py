"""Data files of Boundscope: icons, palettes, example networks with their properties."""
