"""Floor 7.0. The site of the tutorials: what is translated, lessons that have run, pages, and a server for them."""
