"""Words that turn what a sentence says, and words that do not: what de-duplication must know of languages."""

from collections.abc import Iterable

_FILLERS_TEXT = "a also an indeed quite really the very"
FILLERS = frozenset(_FILLERS_TEXT.split())
"""Words whose absence makes no sentence say something else."""

# Better one too many: what is here keeps two sentences apart that might say the same, and nothing is lost by that.
_TURNING_TEXT = """
    barely cannot cant couldnt didnt doesnt dont hadnt hardly hasnt havent isnt lack lacks neither never no nobody
    none nor not nothing nowhere shouldnt unlikely wasnt werent without wont wouldnt almost before either else
    except fewer former formerly if instead less likely may maybe might once only or perhaps possibly probably
    rarely refuses said says seldom should stopped supposedly than though thinks unless unlike until used wants
    when whenever whether would could
    keine keinem keinen keiner keines kein nicht nichts nie niemals niemand ohne oder wenn falls vielleicht nur
    aucun aucune jamais ne ni pas personne plus rien sans si
    jamás nada nadie ni ningún ninguna ninguno nunca sin tampoco
    mai né nessuno nessuna niente non senza
    jamais nada nem ninguém não nenhum nenhuma sem
    geen niemand niet niets nooit zonder
    bez nie nigdy nikt nic
    без не нет ни никогда никто ничего
    안 못 नहीं मत لا ليس لم لن 不 没 沒 無 ない
"""
TURNING = frozenset(_TURNING_TEXT.split())
"""Negations, conditions and doubts: with one of them more or less, a sentence says something else."""


def turning_words(words: Iterable[str]) -> list[str]:
    """Those of the words, in lower case, that turn what the others say; sorted."""
    return sorted(filter(_turns, words))


def _turns(word: str) -> bool:
    # "isn't", "n'aime"
    return word in TURNING or word.endswith("n't") or word.startswith("n'")
