"""Pages that need nothing but themselves, and ask nobody for anything: one head, and one policy, for all of them."""

from __future__ import annotations

import html

from .languages import LANGUAGES


def document(lang: str, title: str, style: str, body: str) -> str:
    """A whole page. What its policy does not name, such as any request, the browser refuses."""
    return f"""<!doctype html>
<html lang="{LANGUAGES[lang]}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{body}</body>
</html>
"""
