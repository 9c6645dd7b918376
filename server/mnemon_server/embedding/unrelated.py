"""The zero of a model: the cosine that it gives to unrelated texts.

Some models, such as those of the E5 family, give any two texts a cosine above 0.7. Only what a cosine exceeds its
model's zero by says that texts are related.
"""

from mnemon_server.embedding.base import Embedder

QUESTIONS = (
    "Where did the children leave their bicycles?",
    "How long does bread dough have to rest?",
    "Who repaired the roof of the old church?",
    "Why was the flight to Madrid cancelled?",
    "Which medicine helps against a sore throat?",
    "When does the company publish its annual results?",
    "What colour is the new carpet in the hallway?",
    "Can I change the password of my account?",
)
STATEMENTS = (
    "The river freezes over in most winters.",
    "My sister plays the violin in an orchestra.",
    "Prices of copper fell by three percent on Tuesday.",
    "He planted tomatoes behind the garage.",
    "The function returns an empty list if no file matches.",
    "Our team lost the final after a penalty shoot-out.",
    "Ancient Rome imported grain from Egypt.",
    "Please remember to feed the cat this evening.",
)

_MAX = 0.95
"""Above it, a model cannot tell these texts apart, for example because it knows no English. Other texts
may differ. Models give unrelated texts up to 0.85.
"""


def unrelated_cosine(embedder: Embedder) -> float:
    """The mean cosine of questions and statements that are unrelated, at least 0 and below 1. Blocks.

    0 if the mean is negative, or if the model does not tell these texts apart.

    Raises:
        EmbeddingError: the model failed.
    """
    model = embedder.model
    vectors = embedder.embed([*map(model.as_query, QUESTIONS), *model.as_passages(STATEMENTS)])
    cosines = vectors[: len(QUESTIONS)] @ vectors[len(QUESTIONS) :].T
    mean = float(cosines.mean())
    return max(mean, 0.0) if mean <= _MAX else 0.0
