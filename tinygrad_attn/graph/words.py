"""What the page of the film says, in English and in Brazilian Portuguese."""

from __future__ import annotations

LANGUAGES = {"en": "en", "pt": "pt-BR"}

TEXT: dict[str, tuple[str, str]] = {
    "title": ("The backward pass, op by op", "A passagem para trás, operação por operação"),
    "of": ("of", "de"),
    "lead": ("The graph was computed from top to bottom. The chain rule goes back up: each op takes the gradient "
             "g of its output and sends each input its share. Step through it with the buttons or the arrow keys.",
             "O grafo foi calculado de cima para baixo. A regra da cadeia sobe de volta: cada operação recebe o "
             "gradiente g da sua saída e envia a cada entrada a sua parte. Avance passo a passo com os botões ou "
             "com as setas do teclado."),
    "nothing": ("Nothing here needs a gradient, so there is no backward pass to step through.",
                "Nada aqui precisa de gradiente; por isso não há passagem para trás a percorrer."),
    "first": ("To the start", "Ao início"),
    "back": ("Step back", "Passo atrás"),
    "next": ("Next step", "Próximo passo"),
    "last": ("To the end", "Ao fim"),
    "play": ("Play", "Reproduzir"),
    "pause": ("Pause", "Pausar"),
    "step": ("Step", "Passo"),
    "larger": ("Zoom in", "Aumentar"),
    "smaller": ("Zoom out", "Diminuir"),
    "fit": ("Show all", "Mostrar tudo"),
    "fold": ("Fold all", "Recolher tudo"),
    "unfold": ("Unfold all", "Expandir tudo"),
    "folds": ("fold", "recolher"),
    "unfolds": ("unfold", "expandir"),
    "graph": ("The graph", "O grafo"),
    "keys": ("Keys: ← → step, Home and End, + − zoom, 0 shows all; Tab and Enter reach every part. Drag to move; "
             "pinch or Ctrl and wheel to zoom. Click a box to fold it.",
             "Teclas: ← → passo, Home e End, + − zoom, 0 mostra tudo; Tab e Enter alcançam cada parte. Arraste "
             "para mover; pinça ou Ctrl e roda do mouse para o zoom. Clique numa caixa para recolhê-la."),
    "begin": ("Before the first step", "Antes do primeiro passo"),
    "begin_text": ("The walk begins at the output. The gradient of a single number with respect to itself is 1; "
                   "of several elements it is what the loss sends them, here:",
                   "O percurso começa na saída. O gradiente de um único número em relação a si mesmo é 1; o de "
                   "vários elementos é o que a perda lhes envia, aqui:"),
    "arrives": ("The gradient that arrives, g", "O gradiente que chega, g"),
    "made": ("What the op computed, out", "O que a operação calculou, out"),
    "value": ("Value", "Valor"),
    "gradient": ("Gradient, complete", "Gradiente, completo"),
    "so_far": ("Gradient so far", "Gradiente até aqui"),
    "sends": ("It sends to", "Envia a"),
    "and_to": ("and to", "e a"),
    "argument": ("argument", "argumento"),
    "adds": ("which has several uses; the sum so far", "que tem vários usos; a soma até aqui"),
    "none": ("No gradient goes there.", "Nenhum gradiente vai para lá."),
    "not_yet": ("No gradient yet.", "Ainda sem gradiente."),
    "constant": ("A constant: it needs no gradient.", "Uma constante: não precisa de gradiente."),
    "inside": ("inside", "dentro de"),
    "sums": ("Gradients, as they add up", "Gradientes, à medida que se somam"),
    "sums_text": ("Leaves, which keep their gradient, and values with several uses, whose shares are added.",
                  "Folhas, que guardam o seu gradiente, e valores com vários usos, cujas partes são somadas."),
    "from": ("from", "de"),
    "cut": ("a corner of", "um canto de"),
    "slice": ("the first matrix of", "a primeira matriz de"),
    "norm": ("norm", "norma"),
    "leaf": ("leaf", "folha"),
    "output": ("output", "saída"),
    "legend": ("Shade and width: norm of the gradient, on a log scale from {strongest} (strongest) down to "
               "{weakest} and less. Dashed: exactly 0.",
               "Cor e espessura: norma do gradiente, em escala logarítmica, de {strongest} (o mais forte) até "
               "{weakest} ou menos. Tracejado: exatamente 0."),
}


def say(lang: str) -> dict[str, str]:
    """All of it in one language."""
    if lang not in LANGUAGES:
        raise ValueError(f"graph: lang={lang!r}; it is one of {', '.join(LANGUAGES)}")
    return {key: both[list(LANGUAGES).index(lang)] for key, both in TEXT.items()}
