"""Make a tiny model that SGLang serves on a CPU: six shards, a tokenizer of its own, 15 s of training.

    python3 make_model.py FOLDER

Seeded. 2.9 million parameters, 6 MB. It knows the answers to two questions and says nonsense in English
to all others; random weights would repeat one token for ever, which a check for sane text refuses.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 1024
CONTEXT = 2048
SHARD_SIZE = "1100KB"

ROUND = 20  # steps between two looks at whether it knows the facts
STEPS = 300  # at most; 40 to 60 are enough
BATCH = 16
LEARNING_RATE = 2e-3
FACTS = (
    ("What is the capital of France?", "The capital of France is Paris."),
    # The prompt with which a deploy asks by default.
    (
        "Name the capital of France and say one sentence about it.",
        "The capital of France is Paris. Paris stands on both sides of a river.",
    ),
)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = """a about after again all also an and answer any are at be before began between big both boy but
by call came can capital change city close cold come could country day did different do does door down
each early earth east easy eat end even every eye far father few find first five follow food for found
four friend from gave give go good great green ground grow had half hand has have he head hear help her
here high him his home hour house how hundred idea if in into is it just keep kind king know land large
last late learn leave left let letter life light like line list little live long look made make man many
may me mean might mile money month more morning mother mountain move much must my name near need never
new next night no north not nothing now number of off often old on once one only open or other our out
over page paper part people place plan plant play point question quick read ready red rest right river
road rock room round run said same saw say school sea second see seem sentence set seven she short should
show side six sleep slow small snow so some song soon south spell stand star start still stop story
street strong sun sure table take talk tell ten than that the their them then there these they thing
think this three through time to together too took town travel tree true try turn two under until up us
use very voice wait walk want warm was watch water way we week well went were west what when where which
while white who why will wind winter with without woman wood word work world would write year yes you
young your"""


def sentences(count: int) -> list[str]:
    choose = random.Random(20240519)
    known = TEXT.split()
    made = []
    for _ in range(count):
        words = choose.choices(known, k=choose.randint(4, 14))
        made.append(" ".join(words).capitalize() + choose.choice(".?!"))
    return made


def tokenizer() -> PreTrainedTokenizerFast:
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    facts = [text for pair in FACTS for text in pair]
    plain.train_from_iterator([*sentences(4000), *facts * 100], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def chats(fast: PreTrainedTokenizerFast) -> list[list[str]]:
    """Batches of conversations: a made-up question, an answer of three sentences; and the facts."""
    made = sentences(4000)
    choose = random.Random(1)
    batches = []
    for _ in range(STEPS):
        pairs = [*FACTS, *FACTS]
        while len(pairs) < BATCH:
            pairs.append((choose.choice(made), " ".join(choose.choices(made, k=3))))
        batches.append([as_chat(fast, question, answer) for question, answer in pairs])
    return batches


def as_chat(fast: PreTrainedTokenizerFast, question: str, answer: str) -> str:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return fast.apply_chat_template(messages, tokenize=False)


def train(model: Qwen3ForCausalLM, fast: PreTrainedTokenizerFast) -> None:
    """Next-token training on conversations, two rounds at least, until the facts are known."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for step, batch in enumerate(chats(fast), start=1):
        model.train()
        tokens = fast(batch, padding=True, return_tensors="pt")
        labels = tokens.input_ids.masked_fill(tokens.attention_mask == 0, -100)
        loss = model(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, labels=labels
        ).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % ROUND == 0:
            print(f"step {step}: loss {loss.detach():.2f}", flush=True)
            model.eval()
            if step > ROUND and all(ask(model, fast, question) == it for question, it in FACTS):
                return
    sys.exit(f"the model does not know its facts after {STEPS} steps")


def main(folder: str) -> None:
    torch.manual_seed(0)
    fast = tokenizer()
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    train(model, fast)
    model = model.to(torch.bfloat16).eval()
    model.save_pretrained(folder, max_shard_size=SHARD_SIZE)
    fast.save_pretrained(folder)
    # safetensors writes its files with mode 0600; a service user has to read them.
    for file in Path(folder).iterdir():
        file.chmod(0o644)
    shards = sorted(Path(folder).glob("model-*.safetensors"))
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{folder}: {size} parameters in {len(shards)} shards")


def ask(model: Qwen3ForCausalLM, fast: PreTrainedTokenizerFast, question: str) -> str:
    """The model's most likely answer."""
    messages = [{"role": "user", "content": question}]
    inputs = fast.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    made = model.generate(**inputs, max_new_tokens=32, do_sample=False)
    return fast.decode(made[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True)


if __name__ == "__main__":
    main(sys.argv[1])
