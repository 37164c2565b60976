"""Make the models of the GPU check: python models.py FOLDER (needs torch, transformers, tokenizers).

FOLDER/target: a Llama of random layers, 1.5 GB in 14 shards, whose next token is decided by a wide
margin. FOLDER/eagle3: a drafter of random weights for it. Seeded. Everybody may read them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, LAYERS, INTERMEDIATE, VOCABULARY, HEADS, KV_HEADS = 2048, 16, 5632, 2048, 16, 8
SHARD = "120MB"
SPECIAL = ["<s>", "</s>"]
EMBEDDED, ROWS = 8.0, 0.02
"""Standard deviations: of the embeddings, to which 16 random layers add about 3, and of lm_head's rows."""


def tokenizer() -> PreTrainedTokenizerFast:
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel()
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator([Path(__file__).read_text()] * 20, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="</s>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return fast


def target(folder: Path, fast: PreTrainedTokenizerFast) -> None:
    config = LlamaConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        intermediate_size=INTERMEDIATE,
        vocab_size=VOCABULARY,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        torch_dtype="bfloat16",
    )
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = LlamaForCausalLM(config)
    decide(model, len(fast))
    model = model.to(torch.bfloat16)
    model.cpu().save_pretrained(folder, max_shard_size=SHARD)
    fast.save_pretrained(folder)


def decide(model: LlamaForCausalLM, tokens: int) -> None:
    """Each token's next one is fixed, in one cycle of all but the special ones: its logit is about 40,
    the others' at most 4. Then a drafter of the same weights proposes what its target takes, however either
    computes it: a control of what is measured, not of the context that a drafter is given."""
    order = torch.randperm(tokens - len(SPECIAL), generator=torch.Generator().manual_seed(2))
    order += len(SPECIAL)
    with torch.no_grad():
        embedded, rows = model.model.embed_tokens.weight, model.lm_head.weight
        order = order.to(rows.device)
        embedded.normal_()
        rows.zero_()
        rows[order.roll(-1)] = ROWS * embedded[order]
        embedded.mul_(EMBEDDED)


def drafter(folder: Path, of: Path, fast: PreTrainedTokenizerFast) -> None:
    """EAGLE-3's tensors, by their names in SGLang's LlamaForCausalLMEagle3."""
    head = HIDDEN // HEADS
    torch.manual_seed(1)
    shapes = {
        "midlayer.self_attn.q_proj.weight": (HEADS * head, 2 * HIDDEN),
        "midlayer.self_attn.k_proj.weight": (KV_HEADS * head, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": (KV_HEADS * head, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": (HIDDEN, HEADS * head),
        "midlayer.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "midlayer.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        "midlayer.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    tensors = {
        name: torch.randn(shape, dtype=torch.bfloat16) * 0.02 for name, shape in shapes.items()
    }
    norms = (
        "midlayer.hidden_norm",
        "midlayer.input_layernorm",
        "midlayer.post_attention_layernorm",
    )
    for name in (*norms, "norm"):
        tensors[f"{name}.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors["d2t"] = torch.zeros(VOCABULARY, dtype=torch.int64)
    tensors["t2d"] = torch.ones(VOCABULARY, dtype=torch.bool)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / "model.safetensors"))
    config = json.loads((of / "config.json").read_text())
    config.update(
        architectures=["LlamaForCausalLMEagle3"], num_hidden_layers=1, draft_vocab_size=VOCABULARY
    )
    (folder / "config.json").write_text(json.dumps(config))
    fast.save_pretrained(folder)


def main() -> None:
    folder = Path(sys.argv[1])
    fast = tokenizer()
    target(folder / "target", fast)
    drafter(folder / "eagle3", folder / "target", fast)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
