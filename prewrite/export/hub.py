"""The way to the hub: a repository of a model or a data set, and a folder sent to it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from prewrite.errors import UserError

Kind = Literal["model", "dataset"]


class Hub:
    """A repository on the hub (HF_ENDPOINT, HF_TOKEN), made where it is not there. Raises UserError.

    private: of one that is made here; None = as the account's settings say.
    """

    def __init__(self, repo: str, revision: str | None = None, *, kind: Kind = "model", private: bool | None = None):
        from huggingface_hub import HfApi

        self.repo, self.revision, self.kind, self.api = repo, revision, kind, HfApi()
        way_out = "look at the name, at HF_TOKEN (`hf auth login`) and at HF_ENDPOINT"
        with _faults_told(f"--push-to-hub {repo}", way_out):
            self.api.create_repo(repo, repo_type=kind, private=private, exist_ok=True)
            if revision is not None:
                self.api.create_branch(repo, repo_type=kind, branch=revision, exist_ok=True)

    def push(self, folder: Path, message: str, again: str) -> str:
        """Sends a folder; returns the commit's address. again: the way to send what is there once more."""
        with _faults_told(f"--push-to-hub {self.repo}", again):
            at = {"repo_id": self.repo, "repo_type": self.kind, "revision": self.revision}
            info = self.api.upload_folder(**at, folder_path=folder, commit_message=message)
        return str(info.commit_url)


@contextlib.contextmanager
def _faults_told(where: str, way_out: str) -> Iterator[None]:
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        yield
    except (HfHubHTTPError, HFValidationError, httpx.HTTPError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{where}: {reason}. {way_out[0].upper()}{way_out[1:]}") from error
