"""What the laboratory says, in English and in Brazilian Portuguese: (en, pt), with places for numbers."""

from __future__ import annotations

from typing import Any

from ..languages import LANGUAGES

TEXT = {
    "title": ("Why attention scores are divided by √d_k", "Por que a atenção divide as pontuações por √d_k"),
    "lead": (
        "A query and a key with independent components of mean 0 and variance 1 have a dot product of variance d_k. "
        "Undivided, the scores of long vectors lie so far apart that the softmax puts all its weight on one key, and "
        "hardly any gradient gets through. Move the slider and watch one draw.",
        "O produto escalar de uma consulta e uma chave, com componentes independentes de média 0 e variância 1, tem "
        "variância d_k. Sem a divisão, as pontuações de vetores longos ficam tão distantes entre si que o softmax põe "
        "todo o peso em uma única chave, e quase nenhum gradiente passa. Mova o controle deslizante e observe um "
        "sorteio."),
    "draw": ("One draw", "Um sorteio"),
    "draw_note": (
        "One query, {n} keys and their values, standard normal; at each d_k the first d_k components of the same "
        "vectors. Of {m} draws it is the one whose norm, unscaled, strays least from the median along the slider; one "
        "draw wanders, since its gap changes as components are added. The loss L is the attention's output. Bars below "
        "1e-20 are not shown; that of the largest weight is only exact to 1e-16, the rounding of 1.",
        "Uma consulta, {n} chaves e seus valores, com distribuição normal padrão; para cada d_k, os primeiros d_k "
        "componentes dos mesmos vetores. De {m} sorteios, este é aquele cuja norma, sem escala, menos se afasta da "
        "mediana ao longo do controle; um sorteio oscila, pois a distância entre as duas maiores pontuações muda a "
        "cada componente. A perda L é a saída da atenção. Barras abaixo de 1e-20 não aparecem; a do maior peso só é "
        "exata até 1e-16, o arredondamento de 1."),
    "slider": ("Length of the vectors, d_k", "Comprimento dos vetores, d_k"),
    "weights": ("attention weights, one bar per key", "pesos de atenção, uma barra por chave"),
    "gradient": ("|∂L/∂score|, logarithmic", "|∂L/∂pontuação|, escala logarítmica"),
    "spread": ("spread of the scores", "dispersão das pontuações"),
    "largest": ("largest weight", "maior peso"),
    "norm": ("norm of the Jacobian", "norma da jacobiana"),
    "arrives": ("‖∂L/∂Q‖", "‖∂L/∂Q‖"),
    "many": ("Many draws", "Muitos sorteios"),
    "many_note": (
        "Lines are medians over {draws} draws against {n} keys, dotted lines are means, bands hold 90 % of the draws, "
        "dashed lines are the limits that theory gives, with no free parameter.",
        "As linhas são medianas de {draws} sorteios contra {n} chaves; as pontilhadas, médias; as faixas contêm 90 % "
        "dos sorteios; as tracejadas são os limites dados pela teoria, sem nenhum parâmetro livre."),
    "claims": ("Theory, measurement and differences", "Teoria, medição e diferenças"),
    "agrees": ("agrees", "confere"), "holds": ("holds", "confirmado"), "off": ("off", "não confere"),
    "table": ("The numbers", "Os números"),
    "limit": ("Small: what theory says, near a limit. J is the Jacobian of the softmax; the spread is that of all "
              "scores.", "Em letra menor: o valor teórico, onde há um limite próximo. J é a jacobiana do softmax; a "
                         "dispersão é a de todas as pontuações."),
    "columns": (
        ("d_k", "spread", "entropy, mean", "largest weight, mean", "‖J‖, median", "‖J‖, mean", "‖∂L/∂scores‖, median",
         "‖∂L/∂Q‖, median", "‖∂L/∂Q‖, mean"),
        ("d_k", "dispersão", "entropia, média", "maior peso, média", "‖J‖, mediana", "‖J‖, média",
         "‖∂L/∂pontuações‖, mediana", "‖∂L/∂Q‖, mediana", "‖∂L/∂Q‖, média")),
    "training": ("What it does to training", "O efeito no treinamento"),
    "training_note": (
        "One attention layer learns in {steps} steps to look up, by content, one of the {keys} tokens of a context, "
        "out of {tokens}. Lines are medians over {seeds} seeds, bands reach from the worst to the best of them, the "
        "dotted line is chance. A query is stuck if its largest weight is on a wrong key and its gradient is dead "
        "(below 1e-6).",
        "Uma camada de atenção aprende em {steps} passos a buscar, pelo conteúdo, um dos {keys} tokens de um "
        "contexto, dentre {tokens} ao todo. As linhas são medianas de {seeds} sementes, as faixas vão da pior à "
        "melhor, a linha pontilhada é o acaso. Uma consulta está travada se seu maior peso está na chave errada e seu "
        "gradiente está morto."),
    "curves_note": ("Each scale at its best rate, a line for each seed.",
                    "Cada escala com sua melhor taxa, uma linha por semente."),
    "controls": ("Three controls: what it takes to learn", "Três controles: o que é preciso para aprender"),
    "honest": ("What popular accounts leave out", "O que as explicações usuais omitem"),
    "footnotes": (
        ("The norm first <em>rises</em> with d_k: the softmax of tiny scores is nearly flat.",
         "Its <em>median</em> collapses exponentially in √d_k; its <em>mean</em> falls only like 1/√d_k, because now "
         "and then the two largest scores nearly tie.",
         "The gradient that reaches Q is multiplied by the keys, whose length grows with √d_k: its mean does not "
         "vanish at all. Nearly all queries get nothing; a few get as much more as they are fewer.",
         "Dividing by d_k instead of √d_k flattens: the weights come near 1/n, and the gradient at Q falls like "
         "1/√d_k.",
         "All of this is about random vectors, as at the start of training. What training makes of it depends on the "
         "task, the loss, the optimiser and the learning rate."),
        ("A norma primeiro <em>sobe</em> com d_k: o softmax de pontuações minúsculas é quase plano.",
         "A <em>mediana</em> despenca exponencialmente em √d_k; a <em>média</em> cai apenas como 1/√d_k, porque de vez "
         "em quando as duas maiores pontuações quase empatam.",
         "O gradiente que chega a Q é multiplicado pelas chaves, cujo comprimento cresce com √d_k: sua média não "
         "desaparece. Quase todas as consultas não recebem nada; umas poucas recebem um gradiente tanto maior quanto "
         "menor é o número delas.",
         "Dividir por d_k em vez de √d_k achata os pesos: eles se aproximam de 1/n, e o gradiente em Q cai como "
         "1/√d_k.",
         "Tudo isso vale para vetores aleatórios, como no início do treinamento. O que o treinamento faz com isso "
         "depende da tarefa, da perda, do otimizador e da taxa de aprendizado.")),
    # ------------------------------------------------------------------------------------------ plots of a sweep
    "panel spread": ("standard deviation of the scores", "desvio padrão das pontuações"),
    "panel largest_weight": ("largest weight", "maior peso"),
    "panel jacobian": ("norm of the softmax's Jacobian", "norma da jacobiana do softmax"),
    "panel grad_query": ("norm of ∂L/∂Q, the gradient that arrives", "norma de ∂L/∂Q, o gradiente que chega"),
    "lines": (("median", "mean", "theory: a limit"), ("mediana", "média", "teoria: um limite")),
    # ---------------------------------------------------------------------------------------- claims of a sweep
    "spread is": ("the spread of the scores is √d_k times the scale, within {off:.1%}",
                  "a dispersão das pontuações é √d_k vezes a escala, com desvio de no máximo {off:.1%}"),
    "mean jacobian": ("in saturation the mean norm is {ratios} times c / √d_k, c = {c:.2f}",
                      "na saturação, a norma média é {ratios} vezes c / √d_k, c = {c:.2f}"),
    "mean entropy": ("the mean entropy is {ratios} times (π²/6) c / √d_k",
                     "a entropia média é {ratios} vezes (π²/6) c / √d_k"),
    "mean largest_weight": ("1 minus the mean largest weight is {ratios} times (ln 2) c / √d_k",
                            "1 menos o maior peso médio é {ratios} vezes (ln 2) c / √d_k"),
    "mean grad_scores": ("the mean gradient at the scores is {ratios} times √(2/π) c / √d_k",
                         "o gradiente médio nas pontuações é {ratios} vezes √(2/π) c / √d_k"),
    "mean grad_query": ("the mean gradient at Q is {ratios} times √(2/π) c: it does not vanish",
                        "o gradiente médio em Q é {ratios} vezes √(2/π) c: não desaparece"),
    "mean grad_key": ("and so is that at K, {ratios} times √(2/π) c",
                      "e assim também em K, {ratios} vezes √(2/π) c"),
    "median jacobian": ("in saturation the median norm is {ratios} times 2 exp(−{gap:.3f} √d_k)",
                        "na saturação, a norma mediana é {ratios} vezes 2 exp(−{gap:.3f} √d_k)"),
    "stays": ("with 1/√d_k the median norm stays: {ratios} from d_k = 16 on",
              "com 1/√d_k, a norma mediana se mantém: {ratios} a partir de d_k = 16"),
    "flattens": ("with 1/d_k the weights flatten: the norm is {ratios} times √(n − 1) / n",
                 "com 1/d_k, os pesos se achatam: a norma é {ratios} vezes √(n − 1) / n"),
    "witness agrees": ("vjps and complex steps agree to {absolute:.0e}, central differences to {central:.0e}",
                       "vjps e passos complexos concordam até {absolute:.0e}, diferenças centrais até {central:.0e}"),
    "to": ("{low} to {high}", "{low} a {high}"),
    "none": ("none", "nenhuma"),
    "testimony": (
        "Witness: at {points} points, Jacobians by vjp and by complex step differ by at most\n"
        "{absolute:.0e} in any element, and by {relative:.0e} of the norm where that is above {resolved:.0e}.\n"
        "Central differences agree to {central:.0e}, which is what they can resolve.",
        "Verificação independente: em {points} pontos, as jacobianas por vjp e por passo complexo\n"
        "diferem em no máximo {absolute:.0e} em qualquer elemento, e em {relative:.0e} da norma, onde esta é\n"
        "maior que {resolved:.0e}. As diferenças centrais concordam até {central:.0e}, que é o que conseguem\n"
        "resolver."),
    "smallest": ("The smallest norm there is {stepped:.1e} by complex step, and {walked:.1e} by vjp, which\nrounds 1 "
                 "− p.",
                 "A menor norma é {stepped:.1e} por passo complexo e {walked:.1e} por vjp, que arredonda 1 − p."),
    # -------------------------------------------------------------------------------- plots and table of a map
    "map columns": (
        ("optimiser", "d_k", "scores", "best rate", "right at the end", "steps to 95 %", "rates that work",
         "stuck at start", "at end"),
        ("otimizador", "d_k", "pontuações", "melhor taxa", "acertos ao final", "passos até 95 % de acertos",
         "taxas que funcionam", "travadas no início", "ao final")),
    "map axes": (("learning rate", "share of right answers"), ("taxa de aprendizado", "fração de acertos")),
    "loss axes": (("step", "loss in the test"), ("passo", "perda no teste")),
    "few rivals": ("few rivals: 4 of the 16 tokens in a context",
                   "poucos concorrentes: 4 dos 16 tokens em um contexto"),
    "cross-entropy": ("cross-entropy instead of squared error", "entropia cruzada em vez de erro quadrático"),
    "tied start": ("tied start: W_k begins as a copy of W_q, and another token is asked for",
                   "início com W_k = W_q (pesos amarrados), e pede-se outro token"),
    # ------------------------------------------------------------------------------------------ claims of a map
    "scaled learns": ("{name}, scaled by 1/√d_k, each seed learns at every d_k",
                      "{name}, com 1/√d_k, a camada aprende com todas as sementes, para todo d_k"),
    "short learns": ("{name}, unscaled, d_k up to 4, each seed learns",
                     "{name}, sem escala, d_k até 4, a camada aprende com todas as sementes"),
    "long fails": ("{name}, unscaled, d_k from 64 on, no seed learns in {steps} steps with any of {rates} rates: the "
                   "best has {best:.0%} right",
                   "{name}, sem escala, a partir de d_k = 64, a camada não aprende em {steps} passos com nenhuma "
                   "semente e nenhuma de {rates} taxas: o melhor resultado é de {best:.0%} de acertos"),
    "stuck": ("{name}, unscaled, d_k = {d_k}, {stuck:.0%} of the queries are stuck at the start, and scaled none",
              "{name}, sem escala, d_k = {d_k}, {stuck:.0%} das consultas estão travadas no início; com escala, "
              "nenhuma"),
    "learns worse": ("{name}, d_k = {d_k}, unscaled learns, but worse: {bad:.0%} right and a loss of {bad_loss:.2g}, "
                     "scaled {good:.0%} and {good_loss:.1g}",
                     "{name}, d_k = {d_k}, sem escala, a camada aprende, porém pior: {bad:.0%} de acertos e perda "
                     "{bad_loss:.2g}; com escala, {good:.0%} e {good_loss:.1g}"),
    "unscaled learns": ("{name}, unscaled, each seed learns at every d_k",
                        "{name}, sem escala, a camada aprende com todas as sementes, para todo d_k"),
    "true stall": ("{name}, d_k = {d_k}, unscaled, the gradient at the start is exactly 0, and nothing is learned in "
                   "{steps} steps",
                   "{name}, d_k = {d_k}, sem escala, o gradiente no início é exatamente 0, e a camada não aprende em "
                   "{steps} passos"),
    "stalls too": ("{name}, d_k = {d_k}, scaled by 1/√d_k, nothing is learned in {steps} steps either",
                   "{name}, d_k = {d_k}, com 1/√d_k, também não aprende em {steps} passos"),
    "flat learns": ("{name}, d_k = {d_k}, scaled by 1/d_k, each seed learns",
                    "{name}, d_k = {d_k}, com 1/d_k, a camada aprende com todas as sementes"),
}


def say(key: str, lang: str = "en", **values: Any) -> Any:
    """A text, with its places filled, or a tuple of texts."""
    text: Any = TEXT[key][list(LANGUAGES).index(lang)]
    return text.format(**values) if values else text
