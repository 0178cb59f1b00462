"""The model card of a bundle: what it is, what it was made from, how good it is, what it cannot do."""

from __future__ import annotations

from typing import Any

from export.held_out import LIST


def model_card(content: dict[str, Any], min_users: int | None) -> str:
    """Writes `MODEL_CARD.md`.

    Args:
        content: what goes into the manifest.
        min_users: how many different users issued each query that was learnt; None when the data is not at hand.
    """
    return (
        "\n\n".join(
            [
                "# Model card",
                _what(content),
                "## Data and privacy\n\n" + _data(content, min_users),
                "## Size\n\n" + _size(content),
                "## Quantization\n\n" + _quantization(content["quantization"]),
                "## Quality\n\n" + _quality(content["quality"]),
                "## Gates\n\n" + _gates(content["gates"]),
                "## Limits\n\n" + _limits(content),
            ]
        )
        + "\n"
    )


def _what(content: dict[str, Any]) -> str:
    decoding = content["decoding"]
    return (
        f"{_network(content['model'])} It suggests the next query of a search session, with or without its first "
        f"characters typed. Beam search of {decoding['beam']} hypotheses, at most {decoding['max_steps']} tokens, "
        f"ranked by log-probability / tokens ** {decoding['length_normalization']:g}. Suggestions less "
        f"probable than {decoding['min_probability_complete']:g} (with something typed) or "
        f"{decoding['min_probability_suggest']:g} (with nothing typed) are left out: floors tuned on "
        f"validation data, 0 when there was none.\n\n{_mixed(content)}\n\n"
        "Run it with `mtn-edge suggest`, check it with `mtn-edge verify`. `required_operators.config` lists what a "
        "reduced ONNX Runtime must keep."
    )


def _network(model: dict[str, Any]) -> str:
    width, layers = f"width {model['d_model']}", f"{model['decoder_layers']} decoder layers"
    size, heads = f"{model['vocab_size']:,} tokens", f"{model['heads']} heads"
    if model["embedding_rank"]:
        size += f" in a table of rank {model['embedding_rank']}"
    match model["arch"]:
        case "mtn":
            return (
                f"A Multiresolution Transformer Network (arXiv 1908.10408): {width}, {heads}, {model['query_layers']} "
                f"query, {model['session_layers']} session and {layers}, {size}; query projection by "
                f"`{model['projection']}`, refinement by `{model['refinement']}`, memory of `{model['memory']}` "
                f"queries, {model['norm']}-norm."
            )
        case "transformer":
            encoder = model["query_layers"] + model["session_layers"]
            return (
                f"A flat Transformer over the session's text: {width}, {heads}, {encoder} encoder and {layers}, {size}."
            )
        case _:
            return f"A recurrent network (`{model['arch']}`): {width}, {model['units']} units, {size}."


def _mixed(content: dict[str, Any]) -> str:
    """What is in the list beside the network."""
    shares = [content["decoding"][f"mix_{task}"] for task in ("complete", "suggest")]
    lists = "; ".join(
        f"popular queries {popular:g} and what followed the last query {followers:g} at most, {when}"
        for (popular, followers, _), when in zip(shares, ("something typed", "nothing typed"), strict=True)
    )
    sources = {
        "none": "nothing",
        "ngram": "an n-gram",
        "copy": "copying from the session",
        "all": "an n-gram and copying from the session",
    }
    return f"Mixed in token by token: {sources[content['model']['fusion']]}. Mixed in by whole queries: {lists}."


def _data(content: dict[str, Any], min_users: int | None) -> str:
    lineage = content["lineage"]
    lines = [
        f"- checkpoint: manifest sha256 `{lineage['checkpoint']}`",
        f"- trained on the dataset with manifest sha256 `{lineage['trained_on']}`",
    ]
    if lineage["data"] is None:
        lines.append("- no dataset was at hand when the bundle was made: it has no popular completions")
    else:
        lines.append(f"- completions and measurements from the dataset with manifest sha256 `{lineage['data']}`")
    if lineage["ngram"] is not None:
        lines.append(f"- n-gram counted from the dataset with manifest sha256 `{lineage['ngram']}`")
    lines.append(_anonymity(min_users))
    lines.append("- nothing is sent anywhere at run time; what `blocklist.txt` holds is never suggested")
    return "\n".join(lines)


def _anonymity(min_users: int | None) -> str:
    if min_users is None:
        return "- how many users issued each query that was learnt stands in the manifest of the training dataset"
    if min_users == 1:
        return "- queries of single users were learnt too (K = 1): the data is taken to be public or synthetic"
    return f"- every query that was learnt or counted was issued by at least {min_users} different users"


def _size(content: dict[str, Any]) -> str:
    sizes = content["sizes"]
    return (
        f"Both graphs {sizes['graphs']:,} bytes (float32: {sizes['graphs_fp32']:,}). Weights {sizes['weights']:,} "
        "bytes, the embedding table once. "
        "Precision: " + ", ".join(f"{group} {kind}" for group, kind in content["precision"].items()) + "."
    )


def _quality(quality: dict[str, Any]) -> str:
    lines = [
        f"| sample | pairs | precision | MRR@{LIST}, partly typed | nats per token, nothing typed |",
        "|---|---|---|---|---|",
    ]
    for source, entry in quality.items():
        name = "the model's own sessions" if source == "model" else f"{source} split"
        lines += [
            f"| {name} | {entry['pairs']} | {_PRECISIONS[precision]} | {entry[precision][f'mrr@{LIST}']} "
            f"| {entry[precision]['nats_per_token']} |"
            for precision in _PRECISIONS
            if precision in entry
        ]
    note = (
        "The network without lists and without a floor. One pair a session: a position at random, and a part of the "
        "next query typed at random. `mtn-edge evaluate` measures the whole bundle."
    )
    return "\n".join(lines) + "\n\n" + note


_PRECISIONS = {"fp32": "fp32", "fp32_trained": "fp32 after training for int8", "int8": "int8", "int4": "int4"}
"""What quality is given for, and how it is called."""


def _quantization(quantization: dict[str, Any]) -> str:
    if quantization["asked"] == "fp32":
        return "None: all weights are float32."
    words = [f"Asked: {quantization['asked']}, method {quantization['method']}."]
    if quantization["max_drop"] is not None:
        drop, most = quantization["mrr_drop"], quantization["max_drop"]
        words.append(f"At most {most:.2%} of MRR may be lost on validation pairs, and {drop:.2%} is.")
    if quantization["kl"] is not None:
        words.append(f"KL to float32: {quantization['kl']:g} nats a token.")
    lines = [
        "| group | precision | bytes | of float32 | KL of it alone | MRR loss of it alone | products |",
        "|---|---|---|---|---|---|---|",
    ]
    for group, entry in quantization["groups"].items():
        kl, loss = ("-" if entry[key] is None else f"{entry[key]:g}" for key in ("kl", "mrr_loss"))
        products = ", ".join(f"{count} {operator}" for operator, count in entry["products"].items()) or "-"
        sizes = f"{entry['bytes']:,} | {entry['bytes_fp32']:,}"
        lines.append(f"| {group} | {entry['precision']} | {sizes} | {kl} | {loss} | {products} |")
    return " ".join(words) + "\n\n" + "\n".join(lines)


def _gates(gates: list[dict[str, Any]]) -> str:
    lines = [f"| {gate['name']} | {gate['value']} | {gate['bound']} |" for gate in gates]
    return "\n".join(["| gate | value | bound |", "|---|---|---|", *lines])


def _limits(content: dict[str, Any]) -> str:
    model = content["model"]
    tokens, queries = model["max_tokens"], model["max_queries"]
    lines = [
        f"- of an earlier query the last {tokens} tokens count, of a session the last {queries} queries at most",
        f"- a suggestion has at most {tokens} tokens; longer typed text gets popular completions only",
        "- suggestions are what the log's users typed: its languages, its errors, its bias",
    ]
    return "\n".join(lines)
