"""The n-gram that a bundle gets: the checkpoint's, or one counted anew from newer or permitted queries."""

from __future__ import annotations

from mtn_edge.console import say
from mtn_edge.data.dataset import Dataset
from mtn_edge.errors import UserError
from mtn_edge.models.fusion import Sources
from mtn_edge.runtime.blocklist import Blocklist
from mtn_edge.training.checkpoint import Checkpoint
from mtn_edge.training.gate import count_ngram


def sources_for(checkpoint: Checkpoint, source: Dataset | None, denied: Blocklist, *, asked: bool) -> Sources | None:
    """What a bundle's model is mixed with; None for nothing.

    Args:
        checkpoint: the model.
        source: a dataset to count; its own tokenizer does not matter.
        denied: queries that must not be counted.
        asked: whether a new count was asked for; without that, and without a block list, the checkpoint's stays.

    Raises:
        UserError: a new count was asked for and the model takes none, or there is a block list and no dataset.
    """
    if checkpoint.sources is None or checkpoint.sources.ngram is None:
        if asked:
            raise UserError(
                f"`{checkpoint.path}` mixes no n-gram in, so there is none to count anew",
                code="no-ngram",
                hint="leave --ngram-from out, or train with --set model.fusion=all",
            )
        return checkpoint.sources
    if not asked and not denied:
        return checkpoint.sources
    if source is None:
        raise UserError(
            "a block list was given, and the n-gram of the checkpoint has counted queries that it may deny",
            code="no-data",
            hint="name a dataset to count again, with --ngram-from or --data",
        )
    say("counting the n-gram")
    ngram = count_ngram(source, checkpoint.tokenizer, checkpoint.config, allowed=lambda text: not denied.denies(text))
    return checkpoint.sources._replace(ngram=ngram)
