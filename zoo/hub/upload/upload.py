"""Uploads of directories in the Hub's layout, over HTTP, by huggingface_hub."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import httpx2
from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)

from zoo.errors import SourceError, UsageError, VerificationError
from zoo.hub.client import HubCall
from zoo.hub.errors import HubRequest
from zoo.hub.listing import check_names, is_offline
from zoo.hub.upload.plan import BRANCH, MODEL_CARD, UploadPlan
from zoo.io.limits import MAX_HUB_LISTING_BYTES
from zoo.io.output.inside import reader_inside
from zoo.io.progress import progress
from zoo.io.retries import TransientError, with_retries
from zoo.overrides import override

Result = TypeVar("Result")


class UploadCall(HubCall):
    """Context of one request of an upload."""

    def __init__(self, repo: str) -> None:
        super().__init__(HubRequest(repo, BRANCH), MAX_HUB_LISTING_BYTES)

    @override
    def on_response(self, response: httpx2.Response) -> None:
        if response.status_code == 409 and response.url.path.endswith("/api/repos/create"):
            return  # the repository exists
        super().on_response(response)

    def run(self, request: Callable[[], Result]) -> Result:
        """Return the result of a request, repeated after transient failures."""

        def attempt() -> Result:
            with self.active():
                return request()

        try:
            return with_retries(attempt)
        except TransientError as error:
            hint = "try again: files that arrived are not sent again"
            raise SourceError(error.what, hint) from None


def upload(plan: UploadPlan, repo: str, *, private: bool, message: str) -> str:
    """Upload a directory in one commit; create the repository if there is none."""
    # Every step can be repeated: files that the repository has are not sent again, and a commit
    # without changes is not made. Large files are sent one by one in the calling thread, so that
    # ``HubCall`` checks their requests; it cannot check the clients of hf_xet.
    check_names(repo, BRANCH)
    if is_offline():
        raise UsageError("an upload needs a connection", "unset $HF_HUB_OFFLINE")
    if get_token() is None:
        raise SourceError("an upload needs an access token", "set $HF_TOKEN")
    api = HfApi(library_name="zoo")
    call = UploadCall(repo)
    with (
        _plain_http(),
        contextlib.ExitStack() as stack,
        progress("uploading", plan.bytes, bytes_=True) as advance,
    ):
        call.run(lambda: api.create_repo(repo, private=private, exist_ok=True))
        additions = [stack.enter_context(_addition(plan, name)) for name in plan.files]
        for addition in additions:
            # sends what the Hub keeps outside of git; other files are part of the commit
            send = partial(api.preupload_lfs_files, repo, [addition], revision=BRANCH)
            call.run(partial(send, free_memory=False))
            advance(plan.files[addition.path_in_repo].bytes)
        commit = call.run(
            lambda: api.create_commit(repo, additions, commit_message=message, revision=BRANCH)
        )
    return str(commit.commit_url)


@contextlib.contextmanager
def _addition(plan: UploadPlan, name: str) -> Iterator[CommitOperationAdd]:
    """Yield a file of the commit, which stays open: what was listed is what is sent."""
    if plan.card is not None and name == MODEL_CARD:
        yield CommitOperationAdd(name, plan.card)
        return
    with reader_inside(plan.path, name) as file:
        addition = CommitOperationAdd(name, file)
        if addition.upload_info.sha256.hex() != plan.files[name].sha256:
            raise VerificationError(f"{plan.path / name} changed while it was read", "try again")
        yield addition


@contextlib.contextmanager
def _plain_http() -> Iterator[None]:
    """Upload by HTTP, without progress bars of huggingface_hub."""
    without_xet = constants.HF_HUB_DISABLE_XET
    quiet = are_progress_bars_disabled()
    constants.HF_HUB_DISABLE_XET = True
    if not quiet:
        disable_progress_bars()
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = without_xet
        if not quiet:
            enable_progress_bars()
