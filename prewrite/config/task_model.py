"""The task model: the frozen model that is asked."""

from collections.abc import Iterator
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field

from prewrite.config.base import Count, NonNegative, Positive, Section, Share, Word

RequestField = Literal["temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty", "n", "seed"]
_OTHER_FIELDS = {
    "model", "messages", "top_k", "min_p", "repetition_penalty", "chat_template_kwargs", "structured_outputs",
}  # fmt: skip
Penalty = Annotated[float, Field(ge=-2, le=2)]


class TaskSampling(Section):
    """How one task's answers are sampled, where that differs (`task_model.by_task`); null = as for the others."""

    temperature: NonNegative | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, lt=1)] | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    max_tokens: Positive | None = None


class TaskModelSettings(Section):
    """The frozen model whose success is the reward."""

    base_url: str | Annotated[list[str], Field(min_length=1)] | None = None
    """an OpenAI-compatible endpoint, as http://host:8000/v1, or a list of them; null = a vLLM server for this run"""
    model: str
    """the name that the endpoint serves, or, without `base_url`, a folder or hub name"""
    api_key_env: str | None = None
    """environment variable that holds the key; the key itself never stands in a config"""
    scoring: Literal["forced_choice", "free_text"] = "forced_choice"
    """classification: force the answer to be a label, or find the label in free text; other tasks are free text"""
    label_logprobs: bool = False
    """with forced choice, ask how likely each label was, for rewards of your own (vLLM's endpoint can)"""
    system_prompt: str | None = None
    """system turn of every query; null = none"""
    chat_template_kwargs: dict[str, bool | int | float | str] = {}
    """passed to the endpoint's chat template, as {"enable_thinking": false}"""
    temperature: NonNegative = 0.0
    """of the task model's answers"""
    top_p: Share = 1.0
    """of the task model's answers"""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """of the task model's answers: among so many likeliest tokens; -1 = all"""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """of the task model's answers: without tokens below this share of the likeliest one's probability"""
    presence_penalty: Penalty = 0.0
    """of the task model's answers: taken off each token that is there already"""
    repetition_penalty: Annotated[float, Field(gt=0)] = 1.0
    """of the task model's answers: each token that is there already, the query's too, is divided by it; 1 = none"""
    max_tokens: Positive = 512
    """of one answer, thinking included"""
    by_task: dict[str, TaskSampling] = {}
    """other sampling for some tasks, as {"gsm8k": {"max_tokens": 2048, "temperature": 0.6}}"""
    samples_per_query: Positive = 1
    """answers to each query, averaged, where temperature is above 0; each is a call"""
    request_fields: dict[RequestField, Word | None] = {}
    """fields an endpoint names otherwise, or refuses (null), as {"max_tokens": "max_completion_tokens", "n": null}"""
    vllm_fields: bool = True
    """send the sampling fields only vLLM and SGLang know (top_k, min_p, repetition_penalty); false for hosted models"""
    concurrency: Positive = 64
    """calls under way at once, of each rank"""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    """deadline of one call, in seconds"""
    max_retries: Count = 4
    """tries after the first, for 408/409/429/5xx and broken connections"""
    max_failure_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    """the run stops once more than this share of its calls stayed failed"""
    log_answers_mib: Count = 0
    """MiB of queries and answers that each rank writes into asked.jsonl of the run folder, to be read; 0 = none"""
    gpus: Annotated[list[Count], Field(min_length=1)] | None = None
    """GPUs of the server started here, as nvidia-smi numbers them; null = the first; several need `server_args`"""
    gpu_memory_utilization: Share = 0.3
    """share of the GPU for the server started here; ignored on the CPU"""
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    """the same server's KV cache in GiB, in place of gpu_memory_utilization; null = what that leaves, or 1 on a CPU"""
    max_model_len: Positive | None = None
    """longest query plus answer of the server started here, in tokens; null = the model's own limit"""
    server_args: list[str] = []
    """further arguments of the server started here, as ["--tensor-parallel-size", "2"]"""
    startup_timeout: Annotated[float, Field(gt=0)] = 600.0
    """seconds until the server started here must be healthy"""

    @property
    def base_urls(self) -> list[str]:
        """The endpoints that are named; [] for a server started here."""
        return [self.base_url] if isinstance(self.base_url, str) else list(self.base_url or ())

    def for_task(self, name: str) -> "TaskModelSettings":
        """The settings that hold for a task's answers."""
        own = self.by_task.get(name)
        return self if own is None else self.model_copy(update=own.model_dump(exclude_none=True))

    def faults(self) -> Iterator[str]:
        """Secrets stay out of a config: they are written into the run folder. So the values are not repeated here."""
        if not all(map(_is_plain_address, self.base_urls)):
            rule = "http://host:8000/v1 (or a list of such), without user name, password and query"
            yield f"`base_url` is no plain address, as {rule}: the key is given by `api_key_env`"
        name = self.api_key_env
        if name is not None and not (name.isidentifier() and name.isupper()):  # hf_... is an identifier too
            yield "`api_key_env` is no environment variable's name: name the variable, in capitals, never the key"
        if any(word.startswith("--api-key") for word in self.server_args):
            yield "`server_args` hold a key: the server started here answers this machine alone, and needs none"
        sent = [name for field in get_args(RequestField) if (name := self.request_fields.get(field, field))]
        twice = sorted({name for name in sent if sent.count(name) > 1 or name in _OTHER_FIELDS})
        if twice:
            yield f"`request_fields` give {', '.join(twice)} to more than one field of a request: one name for each"
        for name in ("", *self.by_task):
            own, where = self.for_task(name), f" of {name!r}" if name else ""
            if self.samples_per_query > 1 and not own.temperature:
                yield f"`samples_per_query` with `temperature` 0{where}: they would all be the same; set it above 0"
            if not self.vllm_fields and (own.top_k > 0 or own.min_p or own.repetition_penalty != 1):
                yield f"`top_k`, `min_p` and `repetition_penalty`{where} are sent with `vllm_fields` alone"
        if self.label_logprobs and self.scoring == "free_text":
            yield "`label_logprobs` are of a forced choice, and `scoring` is free_text: leave one of them out"
        if self.gpus is not None and self.base_url is not None:
            yield "`gpus` are of a server started here, and `base_url` names one that runs: leave one of them null"
        if self.gpus is not None and len(set(self.gpus)) < len(self.gpus):
            yield f"`gpus` {self.gpus} names a GPU twice: each at most once"


def _is_plain_address(base_url: str) -> bool:
    try:
        url = urlsplit(base_url)
        (url.hostname or "").encode("idna")  # as every connection does
        is_whole = url.scheme in ("http", "https") and bool(url.hostname) and not any(map(str.isspace, base_url))
        is_whole &= base_url.count("://") == 1  # a list of them is a list
        return is_whole and "@" not in base_url and not url.query and url.port != 0
    except ValueError:  # what it says may repeat a password
        return False
