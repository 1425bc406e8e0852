"""What the pictures and the page say, in English and in Brazilian Portuguese."""

from __future__ import annotations

from ..languages import LANGUAGES

TEXT: dict[str, tuple[str, str]] = {
    "title": ("The backward pass, op by op", "A retropropagação, operação por operação"),
    "lead": ("Values were computed from top to bottom. The chain rule goes back up: an op waits until all uses of"
             " its output have sent their share, takes the sum as g, and sends each of its inputs a share.",
             "Os valores foram calculados de cima para baixo. A regra da cadeia faz o caminho inverso: cada "
             "operação espera até que todos os usos da sua saída enviem a sua parcela, toma a soma como g e envia"
             " uma parcela a cada uma das suas entradas."),
    "nothing": ("No op here sends a gradient back, so there is no backward pass to step through.",
                "Nenhuma operação aqui envia gradientes de volta; por isso não há retropropagação a acompanhar."),
    "first": ("To the start", "Ir para o início"),
    "back": ("Step back", "Passo anterior"),
    "next": ("Next step", "Próximo passo"),
    "last": ("To the end", "Ir para o fim"),
    "play": ("Play", "Reproduzir"),
    "pause": ("Pause", "Pausar"),
    "step": ("Step", "Passo"),
    "of": ("of", "de"),
    "steps": ("Steps of the backward pass", "Passos da retropropagação"),
    "larger": ("Zoom in", "Aumentar"),
    "smaller": ("Zoom out", "Diminuir"),
    "fit": ("Show all", "Ajustar"),
    "fold": ("Fold all", "Recolher"),
    "unfold": ("Unfold all", "Expandir"),
    "graph": ("The graph", "O grafo"),
    "graph_of": ("Computation graph of", "Grafo de computação de"),
    "keys": ("Keys: ← → step; on the graph and its buttons, Home and End go to the start and the end, + and − "
             "zoom, 0 shows all; Tab and Enter reach every part, Escape comes back to the step. Drag to move; "
             "pinch, or Ctrl and wheel, to zoom. Click the name of a box to fold it, a folded box to open it, "
             "anything else to look at it.",
             "Teclado: ← → muda de passo; no grafo e nos seus botões, Home e End vão ao início e ao fim, + e − "
             "mudam o zoom, 0 ajusta à tela; Tab e Enter percorrem o grafo, Esc volta ao passo. Arraste para "
             "mover; para o zoom, use o gesto de pinça ou Ctrl e a roda do mouse. Clique no nome de uma caixa "
             "para recolhê-la, em uma caixa recolhida para abri-la, em qualquer outra parte para examiná-la."),
    "begin": ("Before the first step", "Antes do primeiro passo"),
    "begin_itself": ("L is the number that is differentiated: here {outputs} itself, so dL/dL = 1.",
                     "L é o número que se deriva: aqui, o próprio {outputs}; logo dL/dL = 1."),
    "begin_sum": ("L is the number that is differentiated: here the sum of all elements of {outputs}, so each of "
                  "them begins with 1.",
                  "L é o número que se deriva: aqui, a soma de todos os elementos de {outputs}; logo cada um "
                  "deles começa com 1."),
    "begin_given": ("L is the number that is differentiated. Its gradient with respect to the output was given:",
                    "L é o número que se deriva. O seu gradiente em relação à saída foi dado:"),
    "means": ("g always means dL/d(out): how much L changes for each unit of change in the output of that op.",
              "g é sempre dL/d(out): quanto L muda para cada unidade de mudança na saída daquela operação."),
    "arrives": ("The gradient that arrives, g", "Gradiente que chega, g"),
    "made": ("What the op computed, out", "Resultado da operação, out"),
    "here": ("here", "aqui"),
    "its_input": ("The input", "A entrada"),
    "value": ("Value", "Valor"),
    "gradient": ("Gradient, complete", "Gradiente completo"),
    "so_far": ("Gradient so far", "Gradiente parcial"),
    "sends": ("It sends to", "Envia para"),
    "sent": ("sends", "envia"),
    "to": ("to", "para"),
    "waits": ("{done} of {all} shares: {name} has more uses, and waits for theirs.",
              "{done} de {all} parcelas: {name} tem outros usos e espera pelas parcelas deles."),
    "adds": ("{name} is used {all} times, so a change of it reaches L along {all} paths, and their shares add up:",
             "{name} é usado {all} vezes: uma mudança sua chega a L por {all} caminhos, e as parcelas se somam:"),
    "adds_some": ("{done} of {all} shares, added up:", "{done} de {all} parcelas, somadas:"),
    "shares": ("shares", "parcelas"),
    "itself": ("L itself", "do próprio L"),
    "none": ("No gradient is sent there.", "Nenhum gradiente é enviado para cá."),
    "not_yet": ("No gradient has come yet.", "O gradiente ainda não chegou."),
    "constant": ("a constant, which needs no gradient: nothing is sent there.",
                 "uma constante, que não requer gradiente: nada é enviado."),
    "inside": ("inside", "dentro de"),
    "return": ("Back to the step", "Voltar ao passo"),
    "sums": ("Gradients, as they add up", "Como os gradientes se acumulam"),
    "sums_text": ("Leaves, which keep their gradient, and values that are used more than once.",
                  "As folhas, cujo gradiente fica guardado, e os valores usados mais de uma vez."),
    "from": ("from", "vindo de"),
    "cut": ("the upper left corner of", "canto superior esquerdo de"),
    "slice": ("the first matrix of", "a primeira matriz de"),
    "norm": ("norm", "norma"),
    "least": ("least", "mínimo"),
    "most": ("largest", "máximo"),
    "leaf": ("leaf", "folha"),
    "constant_kind": ("constant", "constante"),
    "op": ("op", "operação"),
    "box": ("folded box", "caixa recolhida"),
    "output": ("output", "saída"),
    "now": ("this step", "este passo"),
    "plus": ("positive", "positivo"),
    "minus": ("negative", "negativo"),
    "folded": ("folded; click it to open it", "recolhida; clique para abri-la"),
    "each_output": ("each output", "cada saída"),
    "of_itself": ("Gradients of {outputs}.", "Gradientes de {outputs}."),
    "of_sum": ("Gradients of the sum of all elements of {outputs}.",
               "Gradientes da soma de todos os elementos de {outputs}."),
    "of_given": ("Gradients for the given dL/d {outputs}.", "Gradientes para o dL/d {outputs} dado."),
    "legend": ("Shade and width: norm of the gradient, on a log scale from {strongest} (strongest) down to "
               "{weakest} and less; dashed: exactly 0.",
               "Tom e espessura: norma do gradiente, em escala logarítmica, de {strongest} (o mais forte) até "
               "{weakest} ou menos; tracejado: exatamente 0."),
    "all_alike": ("Shade and width: norm of the gradient, on a log scale; here all are within a factor of ten, "
                  "{weakest} to {strongest}, and drawn nearly alike.",
                  "Tom e espessura: norma do gradiente, em escala logarítmica; aqui todas diferem por menos de um"
                  " fator dez, de {weakest} a {strongest}, e são desenhadas quase iguais."),
    "not_finite": ("Some are infinite or NaN, and drawn as the strongest.",
                   "Alguns são infinitos ou NaN, e são desenhados como os mais fortes."),
    "all_zero": ("Every gradient is exactly 0.", "Todos os gradientes são exatamente 0."),
    "against": ("Arrows show the computation; gradients flow against them.",
                "As setas mostram o cálculo; os gradientes vão contra elas."),
    "turned": ("Grey arrows show the computation, orange ones the gradients sent back; blue is this step.",
               "As setas cinza mostram o cálculo; as laranja, os gradientes enviados de volta; azul é este passo."),
}

# What the ops compute, of those whose docstrings are more than a formula.
FORMULAS = {
    "x · y, elementwise": "x · y, elemento a elemento",
    "xʸ, with 0⁰ = 1": "xʸ, com 0⁰ = 1",
    "√x, with √′(0) = +∞": "√x, com √′(0) = +∞",
    "1 / (1 + e⁻ˣ), by way of e⁻|ˣ|, which cannot overflow": "1 / (1 + e⁻ˣ), por meio de e⁻|ˣ|, que não estoura",
    "log(1 + eˣ), a smooth max(x, 0), without overflow": "log(1 + eˣ), um max(x, 0) suave, sem estouro",
    "max(x, 0), with relu′(0) = 0": "max(x, 0), com relu′(0) = 0",
    "|x|, with |0|′ = 0": "|x|, com |0|′ = 0",
    "x, but no less than min and no more than max; the gradient passes inside and at the bounds":
        "x, mas não menos que min nem mais que max; o gradiente passa dentro dos limites e neles",
    "x in another floating dtype": "x em outro dtype de ponto flutuante",
    "x where the condition holds, else y; the gradient goes to the one chosen, and 0 to the other":
        "x onde a condição vale, senão y; o gradiente vai para o escolhido, e 0 para o outro",
    "max(x, y), elementwise; where they are equal each gets half of the gradient":
        "max(x, y), elemento a elemento; onde são iguais, cada um recebe metade do gradiente",
    "min(x, y), elementwise; where they are equal each gets half of the gradient":
        "min(x, y), elemento a elemento; onde são iguais, cada um recebe metade do gradiente",
    "The lower triangle of the last two axes, up to diagonal k, and 0 above":
        "O triângulo inferior dos dois últimos eixos, até a diagonal k, e 0 acima",
    "The upper triangle of the last two axes, from diagonal k, and 0 below":
        "O triângulo superior dos dois últimos eixos, a partir da diagonal k, e 0 abaixo",
    "Σ (x − mean)² / (n − ddof)": "Σ (x − média)² / (n − ddof)",
    "The largest; tied elements share its gradient equally, so that the shares sum to 1":
        "O maior; elementos empatados dividem o gradiente por igual, e as partes somam 1",
    "The smallest; tied elements share its gradient equally, so that the shares sum to 1":
        "O menor; elementos empatados dividem o gradiente por igual, e as partes somam 1",
    "outᵢ = x₀ + … + xᵢ along one axis, so that xᵢ has a part in outᵢ and all after it":
        "outᵢ = x₀ + … + xᵢ ao longo de um eixo; assim xᵢ participa de outᵢ e de todos os seguintes",
    "pᵢ = exp xᵢ / Σⱼ exp xⱼ: scores made positive weights that sum to 1 along axis":
        "pᵢ = exp xᵢ / Σⱼ exp xⱼ: os escores viram pesos positivos que somam 1 ao longo de axis",
    "log Σ exp x without overflow; its gradient is softmax(x)":
        "log Σ exp x sem estouro; o seu gradiente é softmax(x)",
    "x − log Σ exp x: the logarithm of softmax, finite also where softmax underflows to 0":
        "x − log Σ exp x: o logaritmo do softmax, finito mesmo onde o softmax se reduz a 0",
    "The same elements in the same order in another shape": "Os mesmos elementos, na mesma ordem, em outra forma",
    "x without its axes of length 1, or without axis": "x sem os seus eixos de comprimento 1, ou sem axis",
    "x with new axes of length 1, at axis of the output": "x com novos eixos de comprimento 1, em axis da saída",
    "x with its axes in another order, reversed if none is given":
        "x com os eixos em outra ordem; invertida, se nenhuma é dada",
    "x with two axes exchanged": "x com dois eixos trocados",
    "x repeated to fill shape": "x repetido até preencher shape",
    "x[index], for every kind of index that NumPy has": "x[index], para todo tipo de índice que o NumPy tem",
    "Zeros of shape with x added at index, once for each time that it names a place: getitem transposed":
        "Zeros de forma shape, com x somado em index, uma vez para cada vez que um lugar é indicado: getitem "
        "transposto",
    "x Wᵀ + b: (..., in), (out, in), (out,) -> (..., out), the layout of PyTorch's weights":
        "x Wᵀ + b: (..., in), (out, in), (out,) -> (..., out), a disposição dos pesos do PyTorch",
    'x Φ(x), x times the probability that a standard normal is below it; "tanh" gives the paper\'s approximation':
        'x Φ(x), x vezes a probabilidade de uma normal padrão ficar abaixo dele; "tanh" dá a aproximação do artigo',
    "(x − mean) / √(var + eps) · weight + bias, over the last axis, with the variance over n":
        "(x − média) / √(variância + eps) · weight + bias, no último eixo, com a variância dividida por n",
    "The mean of −log softmax(logits)[target]: logits (..., C), integer targets (...) -> ()":
        "A média de −log softmax(logits)[alvo]: logits (..., C), alvos inteiros (...) -> ()",
    "weight[ids]: (n, E), integers (...) -> (..., E)": "weight[ids]: (n, E), inteiros (...) -> (..., E)",
    "softmax(Q Kᵀ · scale) V, for groups of query heads that share keys and values, and without the weights":
        "softmax(Q Kᵀ · scale) V, para grupos de cabeças de consulta que compartilham chaves e valores, sem os pesos",
    "softmax(Q Kᵀ · scale) V for each head, where Q, K and V are side by side, and so are the outputs":
        "softmax(Q Kᵀ · scale) V para cada cabeça, com Q, K e V lado a lado, assim como as saídas",
}


def say(lang: str) -> dict[str, str]:
    """All of it in one language."""
    if lang not in LANGUAGES:
        raise ValueError(f"graph: lang={lang!r}; it is one of {', '.join(LANGUAGES)}")
    return {key: both[list(LANGUAGES).index(lang)] for key, both in TEXT.items()}


def translated(formula: str, lang: str) -> str:
    """A formula in that language; of an op that is not the package's own, as it is."""
    return FORMULAS.get(formula, formula) if lang == "pt" else formula
