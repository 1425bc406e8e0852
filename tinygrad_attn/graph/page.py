"""x"""
def page(*a, **k): return ""
def framed(p): return p
