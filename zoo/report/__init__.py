"""Reports: HTML pages and SVG charts. Imports no torch."""
