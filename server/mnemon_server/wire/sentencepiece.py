"""Reads the files of SentencePiece models, which are messages of protocol buffers."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError


def parse_model(encoded: bytes) -> Any:
    """The part of a `ModelProto` that a tokenizer needs: `pieces`, each with `piece` and `score`, and
    `normalizer.precompiled_charsmap`.

    Raises:
        ValueError: it is not a SentencePiece model.
    """
    try:
        return _model_class().FromString(encoded)
    except DecodeError as error:
        raise ValueError(f"not a SentencePiece model: {error}") from error


def _model_class() -> Any:
    """The message class, by the field numbers of sentencepiece_model.proto."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece.proto", package="sentencepiece", syntax="proto2")
    piece = file.message_type.add(name="SentencePiece")
    piece.field.add(name="piece", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    piece.field.add(name="score", number=2, type=field.TYPE_FLOAT, label=field.LABEL_OPTIONAL)
    normalizer = file.message_type.add(name="NormalizerSpec")
    normalizer.field.add(name="precompiled_charsmap", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    model = file.message_type.add(name="ModelProto")
    for name, number, label, kind in (
        ("pieces", 1, field.LABEL_REPEATED, "SentencePiece"),
        ("normalizer", 3, field.LABEL_OPTIONAL, "NormalizerSpec"),
    ):
        model.field.add(
            name=name, number=number, label=label, type=field.TYPE_MESSAGE, type_name=f".sentencepiece.{kind}"
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sentencepiece.ModelProto"))
