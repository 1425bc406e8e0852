"""What the laboratory says, in English and in Brazilian Portuguese: (en, pt), with places for numbers."""

from __future__ import annotations

from typing import Any

LANGUAGES = {"en": "en", "pt": "pt-BR"}

TEXT = {
    "title": ("Why attention scores are divided by √d_k", "Por que a atenção divide as pontuações por √d_k"),
    "lead": (
        "A query and a key with independent components of mean 0 and variance 1 have a dot product of variance d_k. "
        "Undivided, the scores of long vectors lie so far apart that the softmax puts all its weight on one key, and "
        "hardly any gradient gets through. Move the slider and watch one draw.",
        "O produto escalar de uma consulta e uma chave, com componentes independentes de média 0 e variância 1, tem "
        "variância d_k. Sem a divisão, as pontuações de vetores longos ficam tão distantes entre si que o softmax põe "
        "todo o peso em uma única chave, e quase nenhum gradiente passa. Mova o controle e observe um sorteio."),
    "draw": ("One draw", "Um sorteio"),
    "draw_note": (
        "One query, {n} keys and their values, standard normal; at each d_k the first d_k components of the same "
        "vectors. Of {m} draws it is the one whose norm at d_k = {top}, unscaled, is the median. The loss L is the "
        "attention's output. Gradients below 1e-16 are the rounding of 1: noise.",
        "Uma consulta, {n} chaves e seus valores, da normal padrão; para cada d_k, os primeiros d_k componentes dos "
        "mesmos vetores. Entre {m} sorteios, é aquele cuja norma em d_k = {top}, sem escala, é a mediana. A perda L é "
        "a saída da atenção. Gradientes abaixo de 1e-16 são o arredondamento de 1: ruído."),
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
    "agrees": ("agrees", "concorda"), "holds": ("holds", "vale"), "off": ("off", "diverge"),
    "table": ("The numbers", "Os números"),
    "limit": ("Small: what theory says, near a limit.", "Em letra menor: o que diz a teoria, perto de um limite."),
    "columns": (
        ("d_k", "spread", "entropy, mean", "largest weight, mean", "‖J‖, median", "‖J‖, mean", "‖∂L/∂scores‖, median",
         "‖∂L/∂Q‖, median", "‖∂L/∂Q‖, mean"),
        ("d_k", "dispersão", "entropia, média", "maior peso, média", "‖J‖, mediana", "‖J‖, média",
         "‖∂L/∂pontuações‖, mediana", "‖∂L/∂Q‖, mediana", "‖∂L/∂Q‖, média")),
    "training": ("What it does to training", "O que isso faz com o treino"),
    "training_note": (
        "One attention layer learns in {steps} steps to look up, by content, one of the {keys} tokens of a context, "
        "out of {tokens}. Lines are medians over {seeds} seeds, bands reach from the worst to the best of them, the "
        "dotted line is chance. A query is stuck if its largest weight is on a wrong key and its gradient is dead.",
        "Uma camada de atenção aprende em {steps} passos a procurar, pelo conteúdo, um dos {keys} tokens de um "
        "contexto, de {tokens} ao todo. As linhas são medianas de {seeds} sementes, as faixas vão da pior à melhor, a "
        "linha pontilhada é o acaso. Uma consulta está presa se seu maior peso está na chave errada e seu gradiente "
        "está morto."),
    "controls": ("One thing changed at a time", "Uma coisa mudada de cada vez"),
    "honest": ("What popular accounts leave out", "O que os relatos populares omitem"),
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
         "desaparece. Quase todas as consultas não recebem nada; umas poucas recebem tanto mais quanto menos são.",
         "Dividir por d_k em vez de √d_k achata: os pesos se aproximam de 1/n, e o gradiente em Q cai como 1/√d_k.",
         "Tudo isso vale para vetores aleatórios, como no início do treino. O que o treino faz com isso depende da "
         "tarefa, da perda, do otimizador e da taxa de aprendizado.")),
    # ------------------------------------------------------------------------------------------ plots of a sweep
    "panel spread": ("standard deviation of the scores", "desvio padrão das pontuações"),
    "panel largest_weight": ("largest weight", "maior peso"),
    "panel jacobian": ("norm of the softmax's Jacobian", "norma da jacobiana do softmax"),
    "panel grad_query": ("norm of ∂L/∂Q, the gradient that arrives", "norma de ∂L/∂Q, o gradiente que chega"),
    "lines": (("median", "mean", "theory: a limit"), ("mediana", "média", "teoria: um limite")),
    # ---------------------------------------------------------------------------------------- claims of a sweep
    "spread is": ("the spread of the scores is √d_k times the scale, within {off:.1%}",
                  "a dispersão das pontuações é √d_k vezes a escala, a menos de {off:.1%}"),
    "mean jacobian": ("saturated, the mean norm is {ratios} of c / √d_k, c = {c:.2f}",
                      "saturada, a norma média é {ratios} de c / √d_k, c = {c:.2f}"),
    "mean grad_query": ("saturated, the mean gradient at Q is {ratios} of √(2/π) c, c = {c:.2f}",
                        "saturado, o gradiente médio em Q é {ratios} de √(2/π) c, c = {c:.2f}"),
    "median jacobian": ("saturated, the median norm is {ratios} of 2 exp(−{gap:.3f} √d_k)",
                        "saturada, a norma mediana é {ratios} de 2 exp(−{gap:.3f} √d_k)"),
    "stays": ("scaled by 1/√d_k, the median norm stays: {ratios} from d_k = 16 on",
              "dividida por √d_k, a norma mediana se mantém: {ratios} a partir de d_k = 16"),
    "flattens": ("scaled by 1/d_k, the weights flatten: the norm is {ratios} of √(n − 1) / n",
                 "com 1/d_k, os pesos se achatam: a norma é {ratios} de √(n − 1) / n"),
    "witness agrees": ("vjps and complex steps agree to {absolute:.0e}, central differences to {central:.0e}",
                       "vjps e passos complexos concordam até {absolute:.0e}, diferenças centrais até {central:.0e}"),
    "to": ("{low} to {high}", "{low} a {high}"),
    "testimony": (
        "Witness: at {draws} draws, Jacobians by vjp and by complex step differ by at most\n"
        "{absolute:.0e} in any element, and by {relative:.0e} of the norm where that is above {resolved:.0e}.\n"
        "Central differences agree to {central:.0e}, which is what they can resolve.\n"
        "The smallest norm there is {stepped:.1e} by complex step, and {walked:.1e} by vjp, which\nrounds 1 − p.",
        "Testemunha: em {draws} sorteios amostrados, as jacobianas por vjp e por passo complexo\n"
        "diferem no máximo {absolute:.0e} em um elemento, e {relative:.0e} da norma onde ela passa de {resolved:.0e}.\n"
        "As diferenças centrais concordam até {central:.0e}, que é o que conseguem resolver.\n"
        "A menor norma é {stepped:.1e} por passo complexo e {walked:.1e} por vjp, que arredonda 1 − p."),
    # -------------------------------------------------------------------------------- plots and table of a map
    "map columns": (
        ("optimiser", "d_k", "scores", "best rate", "right at the end", "steps to 95 %", "rates that work",
         "stuck at start", "at end"),
        ("otimizador", "d_k", "pontuações", "melhor taxa", "acertos no fim", "passos até 95 %", "taxas que funcionam",
         "presas no início", "no fim")),
    "map axes": (("learning rate", "share of right answers"), ("taxa de aprendizado", "fração de acertos")),
    "loss axes": (("step", "loss on the test contexts"), ("passo", "perda nos contextos de teste")),
    "few rivals": ("few rivals: 4 of 64 tokens", "poucos rivais: 4 de 64 tokens"),
    "cross-entropy": ("cross-entropy instead of squared error", "entropia cruzada em vez de erro quadrático"),
    "tied start": ("tied start: W_k begins as a copy of W_q", "início atado: W_k começa como cópia de W_q"),
    # ------------------------------------------------------------------------------------------ claims of a map
    "scaled learns": ("{name}, scaled by 1/√d_k, each seed learns at every d_k",
                      "{name}, com 1/√d_k, todas as sementes aprendem em todo d_k"),
    "short learns": ("{name}, unscaled, d_k up to 4, each seed learns",
                     "{name}, sem escala, d_k até 4, todas as sementes aprendem"),
    "long fails": ("{name}, unscaled, d_k from 64 on, no seed learns with any rate: the best has {best:.0%} right",
                   "{name}, sem escala, a partir de d_k = 64, nenhuma semente aprende com nenhuma taxa: a melhor "
                   "acerta {best:.0%}"),
    "stuck": ("{name}, unscaled, d_k = {d_k}, {stuck:.0%} of the queries are stuck at the start, and scaled none",
              "{name}, sem escala, d_k = {d_k}, {stuck:.0%} das consultas estão presas no início; com escala, nenhuma"),
    "learns worse": ("{name}, d_k = {d_k}, unscaled learns, but worse: {bad:.0%} right and a loss of {bad_loss:.2g}, "
                     "scaled {good:.0%} and {good_loss:.1g}",
                     "{name}, d_k = {d_k}, sem escala aprende, mas pior: {bad:.0%} de acertos e perda {bad_loss:.2g}; "
                     "com escala, {good:.0%} e {good_loss:.1g}"),
    "unscaled learns": ("{name}, unscaled, each seed learns at every d_k",
                        "{name}, sem escala, todas as sementes aprendem em todo d_k"),
    "true stall": ("{name}, d_k = {d_k}, unscaled, the gradient at the start is exactly 0, and nothing is learned",
                   "{name}, d_k = {d_k}, sem escala, o gradiente no início é exatamente 0, e nada se aprende"),
    "stalls too": ("{name}, d_k = {d_k}, scaled by 1/√d_k, nothing is learned either",
                   "{name}, d_k = {d_k}, com 1/√d_k, tampouco se aprende"),
    "flat learns": ("{name}, d_k = {d_k}, scaled by 1/d_k, each seed learns",
                    "{name}, d_k = {d_k}, com 1/d_k, todas as sementes aprendem"),
}


def say(key: str, lang: str = "en", **values: Any) -> Any:
    """A text, with its places filled, or a tuple of texts."""
    text: Any = TEXT[key][list(LANGUAGES).index(lang)]
    return text.format(**values) if values else text
