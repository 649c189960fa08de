#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns terminal output into an SVG picture: inferwire show --color always FILE | render.py [first:last] > picture.svg"""
import html
import re
import sys

FONT_PX, LINE_PX, CHAR_PX, PAD_PX = 14, 19, 8.43, 16
COLOURS = {"33": "#e3b341", "31": "#f47067", "32": "#57ab5a", "36": "#39c5cf"}


def spans(line):
    """The line as (style, text) pairs; style from the SGR codes before the text."""
    style, out = {}, []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            for code in part[2:-1].split(";"):
                if code in ("", "0"):
                    style = {}
                elif code == "1":
                    style = {**style, "font-weight": "bold"}
                elif code == "2":
                    style = {**style, "fill": "#768390"}
                elif code in COLOURS:
                    style = {**style, "fill": COLOURS[code]}
        elif part:
            out.append((style, part))
    return out


def main():
    lines = sys.stdin.read().rstrip("\n").split("\n")
    if len(sys.argv) > 1:
        first, last = (int(x) for x in sys.argv[1].split(":"))
        lines = lines[first - 1 : last]
    columns = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)
    width, height = columns * CHAR_PX + 2 * PAD_PX, len(lines) * LINE_PX + 2 * PAD_PX
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
          f'viewBox="0 0 {width:.0f} {height:.0f}">')
    print(f'<rect width="100%" height="100%" rx="8" fill="#22272e"/><g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
          f'font-size="{FONT_PX}" fill="#adbac7" xml:space="preserve">')
    for row, line in enumerate(lines):
        column, y = 0, PAD_PX + row * LINE_PX + FONT_PX
        for style, text in spans(line):
            attributes = "".join(f' {key}="{value}"' for key, value in style.items())
            # textLength keeps columns straight in any font.
            print(f'<text x="{PAD_PX + column * CHAR_PX:.1f}" y="{y}" textLength="{len(text) * CHAR_PX:.1f}"'
                  f'{attributes}>{html.escape(text)}</text>')
            column += len(text)
    print("</g></svg>")


if __name__ == "__main__":
    main()
