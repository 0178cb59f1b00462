"""The n-gram that a bundle gets: the checkpoint's, or one counted anew from newer or permitted queries."""

from __future__ import annotations

from mtn_edge.console import say
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.models.fusion import Sources
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.training.checkpoint import Checkpoint
from mtn_edge.training.gate import count_ngram


def sources_for(
    checkpoint: Checkpoint, asked: Dataset | None, data: Dataset | None, denied: Blocklist
) -> tuple[Sources | None, Dataset | None]:
    """What a bundle's model is mixed with (None for nothing), and the dataset that was counted for it.

    Args:
        checkpoint: the model.
        asked: a dataset to count instead of what the checkpoint counted; its own tokenizer does not matter.
        data: the dataset of the bundle's lists; with a block list it is counted again, if the model was trained on it.
        denied: queries that must not be counted.

    Raises:
        UserError: a new count was asked for and the model takes none, or there is a block list and nothing to count.
    """
    if checkpoint.sources is None or checkpoint.sources.ngram is None:
        if asked is not None:
            raise UserError(
                f"`{checkpoint.path}` mixes no n-gram in, so there is none to count anew",
                code="no-ngram",
                hint="leave --ngram-from out, or train with --set model.fusion=all",
            )
        return checkpoint.sources, None
    if asked is None and not denied:
        return checkpoint.sources, None
    trained_on = checkpoint.manifest["lineage"]["dataset"]
    counted = asked or (data if data is not None and data.manifest["manifest_sha256"] == trained_on else None)
    if counted is None:
        raise UserError(
            "a block list was given, and the n-gram of the checkpoint has counted queries that it may deny",
            code="no-data",
            hint="name a dataset to count again: any with --ngram-from, or with --data the one it was trained on",
        )
    say("counting the n-gram")
    ngram = count_ngram(counted, checkpoint.tokenizer, checkpoint.config, allowed=lambda text: not denied.denies(text))
    return checkpoint.sources._replace(ngram=ngram), counted
