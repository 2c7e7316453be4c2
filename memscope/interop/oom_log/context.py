"""What a log says around an error: program, versions, options, and where the memory went."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from memscope.interop.oom_log.search import WordPattern, has_word
from memscope.interop.oom_log.sizes import SIZE, Size, parse_difference, parse_size


class Server(StrEnum):
    """Inference servers."""

    SGLANG = "sglang"
    VLLM = "vllm"
    TGI = "tgi"


class XlaUser(StrEnum):
    """What runs on XLA."""

    JAX = "jax"
    TORCH_XLA = "torch_xla"


# Options that decide about memory, as vLLM and SGLang name them; a log writes them in many ways.
OPTIONS = (
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
    "kv_cache_dtype",
    "tensor_parallel_size",
    "mem_fraction_static",
    "max_running_requests",
    "chunked_prefill_size",
    "disable_cuda_graph",
)
MAX_SETTING = 200

_OPTION = WordPattern(
    rf"(?:--)?\b({'|'.join(OPTIONS).replace('_', '[-_]')})(?![\w-])['\"]?(?:[ =:]{{1,3}}|[ ]?\()"
    r"['\"]?(-?[\w.]{1,24})",
    *(max(name.split("_"), key=len) for name in OPTIONS),
)
_FLAG = WordPattern(
    r"--(enforce-eager|disable-cuda-graph)(?![\w-])", "--enforce-eager", "--disable-cuda-graph"
)
_SERVERS = (
    (Server.SGLANG, WordPattern(r"sglang|mem[-_]fraction[-_]static", "sglang", "static")),
    (
        Server.VLLM,
        WordPattern(
            r"\bvllm\b|gpu[-_]memory[-_]utilization|EngineCore|VllmWorker",
            *("vllm", "utilization", "EngineCore", "VllmWorker"),
        ),
    ),
)
_TORCH = WordPattern(
    r"(?:\btorch(?:==|[ :]{1,2}v?|-)|PyTorch version: )(\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)",
    *("torch==", "torch ", "torch:", "torch-", "PyTorch version"),
)
_SETTING = WordPattern(
    r"(PYTORCH_(?:[A-Z]{2,8}_)?ALLOC_CONF)['\"]?\s{0,2}[=:]\s{0,2}['\"]?"
    r"((?:[a-z_]{3,40}:[\w.\[\]]{1,40},?){1,8})",
    "ALLOC_CONF",
)
_XLA_SETTING = WordPattern(
    r"\b(XLA_(?:PYTHON_)?CLIENT_(?:MEM_FRACTION|PREALLOCATE|ALLOCATOR))['\"]?\]?\s{0,2}[=:,]\s{0,2}"
    r"['\"]?([\w.]{1,16})",
    "XLA_",
)
_XLA = WordPattern(
    r"(?:Xla|Jax)RuntimeError|torch_xla[/.]", "XlaRuntime", "JaxRuntime", "torch_xla"
)
_ACCOUNTS = {
    "total": (
        r"(?:total_gpu_memory\(|Freememoryondevice(?:\w{2,8}:\d{1,4})?\([\d.]{1,12}(?:GiB)?/)"
        rf"({SIZE})\)"
    ),
    "budget": rf"gpu_memory_utilization\([\d.]{{1,8}}\)=({SIZE})",
    "weights": rf"(?:[Mm]odelloadingtook|[Mm]odelweightstake|[Ll]oadingmodelweightstook)({SIZE})",
    "activations": rf"activationpeakmemorytakes({SIZE})",
    "non_torch": rf"non_torch_memorytakes({SIZE})",
    "kv": rf"(?:AvailableKVcachememory:|memoryreservedforKVCacheis)({SIZE})",
    "graphs": (
        r"(?:EstimatedCUDAgraphmemory:|CUDAgraphpoolmemory:"
        rf"|Graphcapturingfinishedin\d{{1,6}}secs,took)({SIZE})"
    ),
    "before_weights": rf"Loadweightbegin\..{{0,20}}availmem=({SIZE})",
    "after_weights": rf"Loadweightend\..{{0,200}}?availmem=({SIZE})",
    "xla_limit": (
        r"(?:^Limit:|memory_limit_:|XLAbackend(?:allocating|willuseupto))(\d{1,20})(?:$|bytes|avail)"
    ),
    "host_limit": r"memory:usage\d{1,20}kB,limit(\d{1,15}kB)",
    "xla_in_use": r"^InUse:(\d{1,20})$",
    "summary_allocated": rf"Allocatedmemory\|({SIZE})",
    "summary_active": rf"Activememory\|({SIZE})",
}
_ACCOUNT_PATTERNS = {name: re.compile(pattern) for name, pattern in _ACCOUNTS.items()}
_ACCOUNT_WORDS = WordPattern(
    r"total_gpu_memory|Free memory on device|[Ll]oading (?:took|model)|weights take"
    r"|KV cache memory:|graph|Load weight|(?:Allocated|Active) memory"
    r"|memory: usage|^Limit: |^InUse: |memory_limit_|XLA backend",
    *("total_gpu_memory", "Free memory on", "oading took", "oading model", "weights take"),
    *("KV cache memory:", "graph", "Load weight", "Allocated memory", "Active memory"),
    *("memory: usage", "Limit: ", "InUse: ", "memory_limit_", "XLA backend"),
)
# Where a server is while it reads weights: its own line, or the frames of a traceback.
_LOADING = WordPattern(
    r"Starting to load model|Load weight begin"
    r"|, in (?:\w{0,40}create_weights|load_model|load_weights|initialize_model)\b",
    *("Starting to load", "Load weight begin", ", in "),
)
_LOADED = WordPattern(
    r"[Mm]odel loading took|[Ll]oading model weights took|Load weight end",
    *("odel loading took", "oading model weights took", "Load weight end"),
)
# A line with none of these teaches nothing.
_TEACHING = tuple(
    word
    for pattern in (
        *(_OPTION, _FLAG, _XLA_SETTING, _XLA, _TORCH, _SETTING, _LOADED, _LOADING, _ACCOUNT_WORDS),
        *(pattern for _, pattern in _SERVERS),
    )
    for word in pattern.words
)
SERVER_WORDS = ("sglang", "vllm", "EngineCore")
# Lines that may teach something hold one of these.
WORDS = (
    *SERVER_WORDS,
    "torch==",
    "PyTorch version",
    "memory_util",
    "memory-util",
    "model_len",
    "model-len",
    "max_num",
    "max-num",
    "enforce",
    "cache_dtype",
    "cache-dtype",
    "tensor_par",
    "tensor-par",
    "mem_frac",
    "mem-frac",
    "max_running",
    "max-running",
    "chunked_pre",
    "chunked-pre",
    "cuda_graph",
    "cuda-graph",
    "ALLOC_CONF",
    "gpu_memory",
    "oading took",
    "eights take",
    "eights took",
    "KV cache",
    "raph mem",
    "raph pool",
    "raph capt",
    "Load weight",
    "load model",
    "create_weights",
    "in load_",
    "initialize_model",
    "| Allocated mem",
    "| Active mem",
    "XLA_",
    "XLA backend",
    "torch_xla",
    "XlaRuntime",
    "JaxRuntime",
    "memory: usage",
    "Limit:   ",
    "InUse:   ",
    "memory_limit_",
)


@dataclass(slots=True)
class LogContext:
    """What the lines so far said; of two values for one name the later one counts.

    ``settings``: of torch's allocator, and the variable that set them. ``options``: of the server
    or of JAX, by name. ``accounts``: sizes by name. ``xla``: what runs on XLA, if anything.
    ``is_loading``: the server was reading weights.
    """

    servers: set[Server] = field(default_factory=set)
    torch_version: tuple[int, ...] = ()
    setting_variable: str = ""
    settings: str = ""
    options: dict[str, str] = field(default_factory=dict)
    accounts: dict[str, Size] = field(default_factory=dict)
    xla: XlaUser | None = None
    is_loading: bool = False

    @property
    def server(self) -> Server | None:
        """The inference server that wrote the log. SGLang's own logs name vLLM, too."""
        return next((name for name, _ in _SERVERS if name in self.servers), None)

    @property
    def has_expandable_segments(self) -> bool:
        """Whether the log shows that expandable segments were on."""
        return "expandable_segments:true" in self.settings.lower()

    def option(self, name: str) -> float | None:
        """The option ``name`` if it is a finite number, else None."""
        try:
            number = float(self.options[name])
        except (KeyError, ValueError):
            return None
        return number if math.isfinite(number) else None

    def is_on(self, name: str) -> bool:
        """Whether the option ``name`` is known to be true."""
        return self.options.get(name, "").lower() in ("true", "1")

    def is_off(self, name: str) -> bool:
        """Whether the option ``name`` is known to be false."""
        return self.options.get(name, "").lower() in ("false", "0")

    def filled_by(self, later: LogContext) -> LogContext:
        """This context, completed from ``later``: programs print options and summaries later."""
        return LogContext(
            self.servers | later.servers,
            self.torch_version or later.torch_version,
            self.setting_variable or later.setting_variable,
            self.settings or later.settings,
            {**later.options, **self.options},
            {**later.accounts, **self.accounts},
            self.xla or later.xla,
            self.is_loading,
        )

    def copy(self) -> LogContext:
        """A copy that later lines do not change."""
        return LogContext(
            set(self.servers),
            self.torch_version,
            self.setting_variable,
            self.settings,
            dict(self.options),
            dict(self.accounts),
            self.xla,
            self.is_loading,
        )

    def add_server(self, text: str) -> None:
        """Learn which server wrote ``text``, a line or its prefix."""
        for name, pattern in _SERVERS:
            if name not in self.servers and pattern.search(text):
                self.servers.add(name)

    def forget_pool(self) -> None:
        """Drop what XLA's allocator said about its pool."""
        for name in ("xla_limit", "xla_in_use"):
            self.accounts.pop(name, None)

    def add(self, line: str, squeezed: str) -> None:
        """Learn from one line. ``squeezed`` is the same line without white space."""
        if not _may_teach(line):
            return
        self.add_server(line)
        for match in _OPTION.matches(line):
            self.options[match[1].replace("-", "_")] = match[2]
        for match in _FLAG.matches(line):
            self.options[match[1].replace("-", "_")] = "True"
        for match in _XLA_SETTING.matches(line):
            self.options[match[1]] = match[2]
        if found := _XLA.search(line):
            is_torch = found[0][0] == "t"
            self.xla = XlaUser.TORCH_XLA if is_torch else self.xla or XlaUser.JAX
        if version := _TORCH.search(line):
            self.torch_version = tuple(int(part) for part in version[1].split("."))
        setting = _SETTING.search(line)
        if setting and "try setting" not in line[: setting.start()]:
            self.setting_variable, self.settings = setting[1], setting[2][:MAX_SETTING]
        if _LOADED.search(line):
            self.is_loading = False
        elif _LOADING.search(line):
            self.is_loading = True
        if _ACCOUNT_WORDS.search(line):
            self._add_accounts(squeezed)

    def _add_accounts(self, squeezed: str) -> None:
        for name, pattern in _ACCOUNT_PATTERNS.items():
            match = pattern.search(squeezed)
            parse = parse_difference if name == "kv" else parse_size
            printed = match[1].replace("kB", "KB") if match else ""
            size = parse(printed) or parse(f"{printed}bytes")
            if size is not None:
                self.accounts[name] = size


@lru_cache(maxsize=32)
def _may_teach(line: str) -> bool:
    return has_word(line, _TEACHING)
