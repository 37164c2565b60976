"""The model's own code, its files, its tokenizer, its drafter."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import CPU, H200, SOURCE, TORCH, Signature, caused, raised

SIGNATURES = caused(
    "trust-remote-code",
    Signature(
        "contains custom code which must be executed",
        "ValueError: The repository /models/m contains custom code which must be executed to "
        "correctly load the model.",
        H200,
    ),
    Signature(
        "Please pass the argument `trust_remote_code=True`",
        "Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
        H200,
    ),
)
SIGNATURES += caused(
    "tokenizer-missing",
    raised(
        "okenizer",
        "OSError: Can't load tokenizer for '/models/m'.",
        "Transformers",
        r"(?:Can't load|[Cc]ouldn't (?:load|instantiate)|[Cc]annot (?:load|instantiate)|"
        r"Failed to load|[Uu]nable to load).*[Tt]okenizer|"
        r"[Tt]okenizer(?: class)? \S+ does not exist|"
        r"does not appear to have a file named tokenizer",
    ),
    raised(
        "Converting from",
        "ValueError: Converting from Tiktoken failed, if a converter for SentencePiece is available, "
        "provide a model path with a SentencePiece tokenizer.model file.",
        "Transformers",
        r"Converting from (?:\w+ and )?(?:Tiktoken|SentencePiece)\b.{0,40}failed",
    ),
    raised(
        "variant of untagged enum",
        "Exception: data did not match any variant of untagged enum ModelWrapper at line 757479",
        "tokenizers",
    ),
)
SIGNATURES += caused(
    "unsupported-model",
    Signature(
        "does not recognize this architecture",
        "ValueError: The checkpoint you are trying to load has model type `nonesuch` but "
        "Transformers does not recognize this architecture.",
        "Transformers",
    ),
    raised(
        "rchitectures",
        "ValueError: Model architectures ['NoSuchForCausalLM'] are not supported for now.",
        f"{H200}; {SOURCE}",
        r"[Aa]rchitectures? .*(?:not supported|failed to be inspected)",
    ),
    raised(
        "nsupported ",
        "ValueError: Unsupported architectures: FooForCausalLM. Supported list: ['LlamaForCausalLM']",
        SOURCE,
        r"[Uu]nsupported (?:model )?(?:architectures?|type)s?\b.{0,20}(?:For[A-Z]|model[ _]type)|"
        r"[Uu]nsupported model(?: type)?: ",
    ),
    raised(
        "onfiguration class",
        "ValueError: Unrecognized configuration class <class 'FooConfig'> for this kind of AutoModel",
        "Transformers",
        r"Unrecognized configuration class",
    ),
    Signature(
        "implementation and the Transformers",
        "ValueError: NoSuchForCausalLM has no SGlang implementation and the Transformers "
        "implementation is not compatible with SGLang.",
        SOURCE,
        r"has no SG[Ll]ang implementation",
    ),
    Signature(
        "Cannot find model module",
        "ValueError: Cannot find model module. 'NoSuchForCausalLM' is not a registered model in "
        "the Transformers library (only relevant if the model is meant to be in Transformers)",
        SOURCE,
    ),
)
SIGNATURES += caused(
    "weights-missing",
    Signature(
        "missing from",
        "RuntimeError: model.safetensors.index.json references 1 shard file(s) missing from "
        "/models/m",
        CPU,
        r"references \d+ shard file\(s\) missing from",
    ),
    Signature(
        "Cannot find any model weights",
        "RuntimeError: Cannot find any model weights with `/models/m`",
        SOURCE,
    ),
    Signature(
        "(os error 2)",
        "safetensors_rust.SafetensorError: Error while opening: No such file or directory (os error 2)",
        "safetensors",
        r"SafetensorError",
    ),
    raised(
        ".safetensors",
        "FileNotFoundError: No such file or directory: /models/m/model-00003-of-00006.safetensors",
        CPU,
        r"FileNotFoundError|No such file or directory",
    ),
)
SIGNATURES += caused(
    "weights-corrupt",
    Signature(
        "SafetensorError",
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: "
        "incomplete metadata, file not fully covered",
        f"{CPU}, {H200}",
    ),
    Signature(
        "PytorchStreamReader failed",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
        "directory",
        TORCH,
    ),
    Signature("UnpicklingError", "_pickle.UnpicklingError: pickle data was truncated", TORCH),
)
SIGNATURES += caused(
    "drafter-mismatch",
    Signature(
        "does not implement",
        "ValueError: Model LlamaForCausalLM does not implement set_eagle3_layers_to_capture",
        SOURCE,
        r"eagle3",
    ),
    raised(
        "has no attribute",
        "AttributeError: 'Qwen2ForCausalLM' object has no attribute 'set_embed'",
        "public report",
        r"object has no attribute '(?:set_embed\w*|get_embed_and_head|set_eagle3_layers_to_capture|"
        r"hot_token_id|capture_aux_hidden_states|set_embed_and_head|load_lm_head\w*)'",
    ),
    raised("hot_token_id", "KeyError: 'hot_token_id'", SOURCE),
    Signature(
        "but the draft vocab",
        "target to share one vocab, but the draft vocab (32000) != target vocab (163840).",
        SOURCE,
    ),
)
SIGNATURES += caused(
    "weights-corrupt",
    Signature(
        "Attempted to load weight",
        "AssertionError: Attempted to load weight (torch.Size([1024, 2048])) into parameter "
        "(torch.Size([1024, 4096]))",
        H200,
    ),
)
SIGNATURES += caused(
    "model-not-found",
    raised(
        "Repo id must be in the form",
        "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/none'",
        f"{CPU}, {H200}",
        # A model without tokenizer.json has this sentence in three warnings, and may serve.
    ),
    raised(
        "We couldn't connect to",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't "
        "find them in the cached files.",
        CPU,
    ),
    raised(
        "LocalEntryNotFoundError",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the "
        "disk cache and outgoing traffic has been disabled.",
        CPU,
    ),
    Signature(
        "is not a valid model identifier",
        "OSError: kimi is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        "Transformers",
    ),
    raised(
        "config.json",
        "OSError: /models/m does not appear to have a file named config.json.",
        "Transformers",
        r"(?:does not appear to have a file named |No such file or directory: .*/|"
        r"`model_type` key in its )config\.json",
    ),
)
SIGNATURES += caused(
    "weights-unreadable",
    raised(
        "Permission denied",
        "PermissionError: [Errno 13] Permission denied: '/models/m/config.json'",
        "Python",
        r"/(?:config|generation_config|tokenizer\w*|preprocessor_config)\.(?:json|model)\b",
    ),
)
SIGNATURES += caused(
    "model-not-found",
    raised(
        "RepoError",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
        "huggingface_hub",
    ),
    raised(
        "RepositoryNotFoundError",
        "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
        "huggingface_hub",
    ),
)
